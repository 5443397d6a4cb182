"""Claims under contention, under hostile plans, and over a long history. Rules: RUN-1, RUN-2, LEASE-1."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID

import asyncpg
from attrs import frozen

from rota.backend import ClaimRequest
from rota_backends.postgres import PostgresBackend
from tests.patience import PATIENCE
from tests.postgres.driving import claim, register, sql, trigger, work
from tests.servers import SCHEMA, postgres_url

_HOSTILE = ("enable_hashjoin", "enable_mergejoin", "enable_material", "enable_indexscan", "enable_bitmapscan")


async def test_a_claim_never_exceeds_its_limit_whatever_the_plan(backend: PostgresBackend) -> None:
    """A limited subquery run again for each row of a nested loop hands out more than it should."""
    await register(backend, *(f"job {number}" for number in range(50)))
    for number in range(50):
        await trigger(backend, f"job {number}")
    database = (await sql("SELECT current_database()"))[0][0]
    for setting in _HOSTILE:
        await sql(f'ALTER DATABASE "{database}" SET {setting} = off')
    try:
        hostile = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1)
        await hostile.open()
        sizes = [len((await claim(hostile, limit=limit)).claims) for limit in (1, 1, 7, 100)]
        await hostile.close()
    finally:
        await sql(f'ALTER DATABASE "{database}" RESET ALL')
    assert sizes == [1, 1, 7, 41]


async def _node(name: str, seen: Counter[UUID], order: dict[str, list[UUID]], total: int) -> None:
    backend = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1)
    await backend.open()
    await work(backend, name, seen, order, total)
    await backend.close()


async def test_four_nodes_and_a_trigger_beside_them_run_everything_once_and_in_order(backend: PostgresBackend) -> None:
    """Claims pick heads after the locks, settlements look for the next one after them: nothing twice, nothing left."""
    names = [f"job {number}" for number in range(12)]
    await register(backend, *names)
    total, seen, order = 12 * 25, Counter[UUID](), dict[str, list[UUID]]()

    async def keep_triggering() -> None:
        for _ in range(25):
            await asyncio.gather(*(trigger(backend, name) for name in names))

    nodes = (_node(f"node {number}", seen, order, total) for number in range(4))
    await asyncio.wait_for(asyncio.gather(keep_triggering(), *nodes), PATIENCE)
    assert (len(seen), set(seen.values())) == (total, {1})
    stored = await sql(
        "SELECT job_id, array_agg(run_id ORDER BY seq) AS runs, count(*) FILTER (WHERE started_at < previous) AS early "
        "FROM (SELECT *, lag(ended_at) OVER (PARTITION BY lane ORDER BY seq) AS previous FROM history) h "
        "JOIN job USING (lane) GROUP BY job_id"
    )
    assert {row["job_id"]: list(row["runs"]) for row in stored} == order
    assert not any(row["early"] for row in stored), "no run is recorded as started before its predecessor ended"
    left = await sql("SELECT count(*) FROM lane WHERE leased OR unfinished <> 0 OR ready_at IS NOT NULL")
    assert left[0][0] == 0
    assert (await sql("SELECT sum(token) FROM lane"))[0][0] == total


async def test_lanes_of_a_higher_priority_that_wait_cost_a_claim_nothing(backend: PostgresBackend) -> None:
    await register(backend, "model")
    await sql("INSERT INTO band (priority, queue, handler) VALUES (9, 'default', 'ok')")
    await sql(
        "INSERT INTO lane (id, band, place, ready_at, definition, queue, priority) "
        "SELECT 1000000 + n, b.id, b.id, clock_timestamp() + interval '1 hour', 0, 'default', 9 "
        "FROM generate_series(1, 20000) n, band b WHERE b.priority = 9"
    )
    await sql("ANALYZE lane")
    await trigger(backend, "model")
    read = await _read_by_an_exchange()
    assert read["lane"].seq_scan == 0
    assert read["lane"].rows < 50


async def test_an_exchange_reads_no_finished_run_however_many_there_are(backend: PostgresBackend) -> None:
    await register(backend, "job", "other")
    await sql(
        "INSERT INTO history (run_id, lane, seq, queued_at, ended_at, missed_count, attempt, state, cause, handler) "
        "SELECT gen_random_uuid(), 1000 + n % 100, n, now(), now(), 0, 1, 'succeeded', 'manual', 'ok' "
        "FROM generate_series(1, 120000) n"
    )
    await sql("ANALYZE")
    await trigger(backend, "job", times=30)
    await trigger(backend, "other")
    claiming = await _read_by_an_exchange()
    assert "history" not in claiming, "a claim does not look at it at all"
    leased = await sql("SELECT run_id, token FROM lane WHERE leased")
    settling = await _read_by_an_exchange(*((row["run_id"], row["token"]) for row in leased))
    assert len(leased) == 2
    assert "history" not in settling, "a settlement only appends"
    for table in ("history", "run", "lane", "job", "definition", "outbox"):
        assert not any(read[table].seq_scan for read in (claiming, settling) if table in read), table


async def test_a_claim_finds_its_lanes_one_by_one_on_tables_never_analysed(backend: PostgresBackend) -> None:
    names = [f"job {number}" for number in range(120)]
    await register(backend, *names)
    await asyncio.gather(*(trigger(backend, name) for name in names))
    read = await _read_by_an_exchange()
    assert read["lane"].rows < 10 * 10, "ten lanes are claimed; the other ready ones are not looked at for each"


@frozen
class _Read:
    seq_scan: int
    rows: int


async def _read_by_an_exchange(*held: tuple[UUID, int]) -> dict[str, _Read]:
    """What one exchange scans, table by table, as the server counts it inside the transaction."""
    connection = await asyncpg.connect(postgres_url())
    count = len(held)
    async with connection.transaction():
        await connection.fetch(
            f'SELECT * FROM "{SCHEMA}".exchange(NULL, $1, $2, $3, $4, $4, $5, $6, $6, $7, $8, $9, 100, '
            "'node', 0, 0, '{ok}', 10, '30 s', NULL, NULL)",
            [run_id for run_id, _ in held], [token for _, token in held], ["node"] * count, ["succeeded"] * count,
            [1] * count, [None] * count, [None] * count, [None] * count, [False] * count,
        )  # fmt: skip
        rows = await connection.fetch(
            "SELECT relname, seq_scan, seq_tup_read + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_xact_user_tables "
            "WHERE schemaname = $1 AND (seq_scan > 0 OR idx_scan > 0)", SCHEMA,
        )  # fmt: skip
    await connection.close()
    return {row["relname"]: _Read(row["seq_scan"], row["rows"]) for row in rows}


async def test_a_node_may_claim_more_often_than_an_integer_counts(backend: PostgresBackend) -> None:
    """After some weeks at a thousand a second; a lease under such a number must not stop everybody when it ends."""
    await register(backend, "job")
    await trigger(backend, "job")
    often = ClaimRequest("busy", frozenset({"ok"}), 1, timedelta(microseconds=1), None, 2**31 + 7)
    first = await backend.claim(often)
    again = await backend.claim(often)
    assert [each.run_id for each in again.claims] == [each.run_id for each in first.claims]
    others = await claim(backend, "other")
    assert [each.run_id for each in others.expired] == [each.run_id for each in first.claims]
