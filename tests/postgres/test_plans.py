"""What each statement reads on large tables, in rows as the server counts them: a page or a batch, never a table.

Every table here is far longer than the most a statement may read of it. Asked twice: on tables the server knows nothing
about yet, as after a big import, and on analysed ones.

Rules: RUN-2, HIST-1.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest

from rota import Event, IdempotencyKey, JobDefinition, Manual
from rota.backend import (
    Audience,
    Claim,
    ClaimRequest,
    EventLimits,
    JobKey,
    JobQuery,
    LeaseRef,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Registration,
    RunQuery,
)
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota_backends.postgres import PostgresBackend, migrations
from rota_backends.postgres.connector import Connection
from rota_backends.postgres.definitions import definition_text
from tests.postgres.driving import LEASE, request, success
from tests.servers import postgres_url

_SCHEMA = "plans"
_JOBS, _FAILING = 20_000, 3_000  # and how many of them wait for their next attempt
_LONG, _DELAYED = 19_000, 19_001  # jobs with a long queue
_LATE, _ENDED = 19_002, 3_000  # a job of a handler of its own, whose delayed runs may all start now; how many they are
_BUSY = 19_003  # another one
_LISTENING = range(10_001, 15_001)  # jobs that wait for one kind of event, each for another subject
_LEASED = range(5_001, 13_001)
_BATCH = 50
_MOST = 20 * _BATCH  # rows of one table in one statement
_untouched = count(4_000, 2 * _BATCH)  # jobs: old versions of rows, if nobody has cleared them away, are read too
_listeners = count()
_BODY = definition_text(JobDefinition("JOB", "ok", Manual()))
_FINISHED = "run_id, lane, seq, queued_at, ended_at, missed_count, attempt, state, cause, handler"
_FILL = f"""
INSERT INTO band (priority, queue, handler) VALUES (0, 'default', 'ok'), (0, 'default', 'late'), (0, 'default', 'busy');
INSERT INTO node (node_id, handlers, lease, seen_at) VALUES ('of all', '{{ok,late,busy}}', '1 day', now());
INSERT INTO definition (lane, handler, queue, priority, body, payload)
    SELECT n, CASE n WHEN {_LATE} THEN 'late' WHEN {_BUSY} THEN 'busy' ELSE 'ok' END, 'default', 0,
        replace($body${_BODY}$body$, 'JOB', 'job ' || n), '' FROM generate_series(1, {_JOBS}) n;
INSERT INTO job (scope_id, job_id, definition, revision, next_due, owner)
    SELECT 'default', 'job ' || n, n, 1, '2020-01-01', CASE WHEN n % 1000 = 0 THEN 'somebody' END
    FROM generate_series(1, {_JOBS}) n;
UPDATE job SET source_module = 'module', event_type = 'type', subject = 'subject ' || lane
    WHERE lane BETWEEN {_LISTENING[0]} AND {_LISTENING[-1]};
INSERT INTO lane (id, band, place, definition, queue, priority, kept, last_seq)
    SELECT d.id, b.id, b.id, d.id, 'default', 0, 2, 9 FROM definition d JOIN band b ON b.handler = d.handler;
INSERT INTO run (run_id, lane, seq, definition, queued_at, cause)
    SELECT md5('run' || n)::uuid, n, 9, n, now(), 'manual' FROM generate_series(1, {_FAILING}) n
    UNION ALL
    SELECT gen_random_uuid(), {_LONG}, 9 + n, {_LONG}, now(), 'manual' FROM generate_series(1, 20000) n;
INSERT INTO run (run_id, lane, seq, definition, queued_at, start_at, cause)
    SELECT gen_random_uuid(), {_DELAYED}, 9 + n, {_DELAYED}, now(), now() + n * interval '1 hour', 'manual'
    FROM generate_series(1, 5000) n
    UNION ALL
    SELECT gen_random_uuid(), {_LATE}, 9 + n, {_LATE}, now(), now() - n * interval '1 second', 'manual'
    FROM generate_series(1, {_ENDED}) n;
UPDATE lane SET attempt = 1, unfinished = 1, run_id = md5('run' || id)::uuid, retry_at = now() + interval '1 day',
    ready_at = now() + interval '1 day' WHERE id <= {_FAILING};
UPDATE lane SET unfinished = 20000, last_seq = 20009, ready_at = now() WHERE id = {_LONG};
UPDATE lane SET unfinished = 5000, last_seq = 5009, is_mixed = true,
    ready_at = now() + interval '1 hour' WHERE id = {_DELAYED};
UPDATE lane SET unfinished = {_ENDED}, last_seq = {_ENDED} + 9, is_mixed = true, ready_at = now() WHERE id = {_LATE};
INSERT INTO history ({_FINISHED})
    SELECT md5('h' || n)::uuid, 1 + n % {_JOBS}, n % 7, now(), now() - n * interval '1 minute', 0, 1, 'succeeded',
        'manual', 'ok' FROM generate_series(1, 2 * {_JOBS}) n;
INSERT INTO letter ({_FINISHED}, scope_id, depth)
    SELECT md5('e' || n)::uuid, 1 + n % {_JOBS}, n, now(), now() - n * interval '1 minute', 0, 1, 'dead', 'manual',
        'ok', 'default', 0 FROM generate_series(1, {_JOBS}) n;
INSERT INTO outbox (lane, definition, at, kind)
    SELECT ARRAY[n], ARRAY[n], now(), 'JobSucceeded' FROM generate_series(1, 10000) n;
INSERT INTO held_key SELECT 'trigger', n, 'key', gen_random_uuid(), now() + (n - 60) * interval '1 second'
    FROM generate_series(1, 10000) n;
INSERT INTO decision (lane, first_at, last_at, count, kind)
    SELECT 1 + n % 100, now(), now(), 1, 'skipped' FROM generate_series(1, 20000) n;
"""
# Rows read from a table, and entries read from each of its indexes (some scans need no row).
_COUNTED = """
SELECT relname AS name, seq_tup_read + coalesce(idx_tup_fetch, 0) AS read
FROM pg_stat_xact_user_tables WHERE schemaname = $1
UNION ALL
SELECT indexrelname, pg_stat_get_xact_tuples_returned(indexrelid) FROM pg_stat_user_indexes WHERE schemaname = $1
"""
# What the planner believes who last saw the store when it was new, with its queues just emptied.
_STALE = """
UPDATE pg_class SET relpages = pg_relation_size(oid) / 8192 + 1, reltuples = CASE
    WHEN relname ~ '^(run|outbox|arrival|held_key|letter|history)' THEN 0 ELSE 100 END
WHERE relnamespace = 'plans'::regnamespace AND relkind IN ('r', 'i')
"""


class Reader:
    """A backend whose every statement is looked at; what it read at most of each table, by operation."""

    def __init__(self, backend: PostgresBackend, session: Connection, aside: Connection) -> None:
        self.backend = backend
        self.aside = aside  # for what a test asks itself: the backend speaks when it likes
        self._session = session
        self._turn = asyncio.Lock()
        self._read: Counter[str] = Counter()
        setattr(backend._connections, "fetch", self._fetch)  # noqa: B010

    async def read(self, operation: Awaitable[Any]) -> Counter[str]:
        """Rows of each table."""
        self._read.clear()
        await operation
        return Counter(self._read)

    async def _fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        async with self._turn, self._session.transaction():
            before = await self._count()
            rows = await self._session.fetch(sql, *args)
            self._read |= await self._count() - before
        return rows

    async def _count(self) -> Counter[str]:
        counted = await self._session.fetch(_COUNTED, _SCHEMA)
        return Counter({row["name"]: row["read"] for row in counted})


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Filled once for all tests here."""
    with psycopg.connect(postgres_url(), autocommit=True) as session:
        session.execute(migrations.script(_SCHEMA).encode())
        session.execute(f"SET search_path TO {_SCHEMA}".encode())
        session.execute(_FILL.encode())
        yield postgres_url()
        session.execute(f"DROP SCHEMA {_SCHEMA} CASCADE".encode())


@pytest.fixture
async def reader(store: str) -> AsyncIterator[Reader]:
    backend = PostgresBackend(store, schema=_SCHEMA)
    await backend.open()
    session, aside = await asyncpg.connect(store), await asyncpg.connect(store)
    yield Reader(backend, session, aside)
    await backend.close()
    await session.close()
    await aside.close()


def _job(number: int) -> JobKey:
    return JobKey("default", f"job {number}")


def _triggers(*numbers: int, **options: Any) -> list[NewRun]:
    return [NewRun(_job(number), new_run_id(), Cause.MANUAL, 10**6, **options) for number in numbers]


async def _work(reader: Reader) -> dict[str, Counter[str]]:
    """A node's life: trigger, claim, renew, settle and claim, hand back."""
    backend, read = reader.backend, reader.read
    first = next(_untouched)
    seen = {"trigger": await read(backend.enqueue(_triggers(*range(first, first + 2 * _BATCH))))}
    seen["trigger, long queue"] = await read(backend.enqueue(_triggers(_LONG, _DELAYED)))
    seen["trigger, later"] = await read(backend.enqueue(_triggers(_DELAYED, delay=timedelta(hours=1))))
    seen["trigger, key"] = await read(
        backend.enqueue(_triggers(7, idempotency_key=IdempotencyKey(str(uuid4()), timedelta(hours=1))))
    )
    held: list[Claim] = []

    async def exchange() -> None:
        _, claimed = await backend.settle([success(each) for each in held], request("node", _BATCH), keep=2)
        assert claimed is not None
        assert len(claimed.claims) == _BATCH
        held[:] = claimed.claims

    seen["claim"] = await read(exchange())
    leases = [LeaseRef(each.key, each.run_id, each.token, LEASE) for each in held]
    seen["renew"] = await read(
        backend.renew(NodeInfo("node", frozenset({"ok"}), _BATCH, _BATCH, "host", 1, LEASE, datetime.now(UTC)), leases)
    )
    seen["settle and claim"] = await read(exchange())
    leases = [LeaseRef(each.key, each.run_id, each.token, LEASE) for each in held]
    seen["hand back"] = await read(backend.hand_back(leases))
    seen["due"] = await read(backend.due(_BATCH))
    seen["notify"] = await read(backend.notify([Event("module", "type")], EventLimits(LEASE, 10, 16)))
    for subject in ("nobody's", f"subject {_LISTENING[next(_listeners)]}"):
        seen[f"notify of {subject}"] = await read(
            backend.notify([Event("module", "type", subject=subject)], EventLimits(LEASE, 10, 16))
        )
    seen["relay"] = await read(backend.outbox(Audience.EVENTS, "node", limit=_BATCH))
    seen["relay, some told"] = await read(
        backend.outbox(Audience.EVENTS, "node", done=range(1, _BATCH), skip=[_job(1), _job(2)], limit=_BATCH)
    )
    return seen


async def _look(reader: Reader) -> dict[str, Counter[str]]:
    """What people ask for."""
    backend, read = reader.backend, reader.read
    letters = await backend.runs(RunQuery("default", dead_letters=True, limit=_BATCH))
    seen = {"jobs": await read(backend.jobs(JobQuery("default", limit=_BATCH)))}
    seen["jobs, next page"] = await read(backend.jobs(JobQuery("default", after="job 5", limit=_BATCH)))
    seen["jobs of an owner"] = await read(backend.jobs(JobQuery("default", owner="somebody", limit=_BATCH)))
    seen["standing"] = await read(backend.standing(_job(5)))
    for number in (5, _LONG):
        seen[f"history of {number}"] = await read(
            backend.runs(RunQuery("default", job_id=f"job {number}", limit=_BATCH))
        )
    seen["letters"] = await read(backend.runs(RunQuery("default", dead_letters=True, limit=_BATCH)))
    after = letters[-1].run_id
    seen["letters, next page"] = await read(
        backend.runs(RunQuery("default", dead_letters=True, after=after, limit=_BATCH))
    )
    seen["letters of a job"] = await read(backend.runs(RunQuery("default", job_id="job 9", dead_letters=True)))
    seen["one run"] = await read(backend.runs(RunQuery("default", run_id=after)))
    seen["decisions"] = await read(backend.decisions(_job(5)))
    return seen


async def _change(reader: Reader) -> dict[str, Counter[str]]:
    """What people do, and what is done for them now and then."""
    backend, read = reader.backend, reader.read
    letters = await backend.runs(RunQuery("default", dead_letters=True, limit=_BATCH))
    seen = {"discard": await read(backend.discard(letters[0].run_id, "default", uuid4()))}
    (replay,) = _triggers(int(letters[1].job_id.removeprefix("job ")), replay_of=letters[1].run_id)
    seen["replay"] = await read(backend.enqueue([replay]))
    seen["cancel"] = await read(backend.cancel(replay.run_id, "default", "why", uuid4()))
    for number in (5, _LONG, _DELAYED):
        revision = (await backend.standing(_job(number))).revision
        definition = JobDefinition(f"job {number}", "ok", Manual(), priority=revision)
        seen[f"register {number}"] = await read(backend.register(Registration(definition, revision, uuid4())))
        seen[f"pause {number}"] = await read(backend.pause(PauseChange(_job(number), "why", revision + 1, None)))
        seen[f"resume {number}"] = await read(backend.pause(PauseChange(_job(number), None, revision + 2, None)))
    for what, prune in {
        "nothing": Prune(100, timedelta(days=1000), limit=_BATCH),
        "too many": Prune(1, timedelta(days=1000), limit=_BATCH),
        "too old": Prune(100, timedelta(days=1), limit=_BATCH),
        "letters": Prune(100, timedelta(days=1000), timedelta(days=1), limit=_BATCH),
    }.items():
        seen[f"prune, {what}"] = await read(backend.prune(prune))
    return seen


# Retention looks at a page of all lanes and of all decisions at a time: by their keys, but more than are in a batch.
_PAGES = {"lane", "lane_pkey", "decision", "decision_lane"}


@pytest.mark.parametrize(
    "statistics", ["SELECT", _STALE, "ANALYZE"], ids=["never analysed", "analysed long ago", "analysed"]
)
async def test_no_statement_reads_a_table(reader: Reader, statistics: str) -> None:
    await reader.aside.execute(statistics)
    seen = {**await _work(reader), **await _look(reader), **await _change(reader)}
    too_much = {
        (operation, table): rows
        for operation, read in seen.items()
        for table, rows in read.items()
        if rows > _MOST and not (operation.startswith("prune") and table in _PAGES)
    }
    assert too_much == {}


async def test_a_census_counts_and_joins_nothing(reader: Reader) -> None:
    """The numbers of jobs, runs and letters have to be counted; handlers nobody has are found by their names."""
    read = await reader.read(reader.backend.census())
    assert read["definition"] < _MOST
    assert read["lane"] < _MOST
    assert read["job"] <= _JOBS + _MOST


class _Worker:
    """Runs what there is for one handler, one run after the other."""

    def __init__(self, backend: PostgresBackend, handler: str, keep: int | None = None) -> None:
        self._backend = backend
        self._handler = handler
        self._keep = keep
        self._held: list[Claim] = []
        self.started: list[UUID] = []

    async def turn(self) -> None:
        """Settle, and claim the next."""
        next_one = ClaimRequest("node", frozenset({self._handler}), 1, LEASE)
        _, claimed = await self._backend.settle([success(each) for each in self._held], next_one, keep=self._keep)
        assert claimed is not None
        self._held = claimed.claims
        self.started += [each.run_id for each in self._held]


async def test_runs_whose_delay_has_ended_are_not_all_read_for_each_of_them(reader: Reader) -> None:
    """Nor is any of them forgotten: the first triggered starts first (RUN-2)."""
    expected = await reader.aside.fetch("SELECT run_id FROM plans.run WHERE lane = $1 ORDER BY seq LIMIT 6", _LATE)
    late = _Worker(reader.backend, "late")
    await late.turn()
    await late.turn()
    read = [await reader.read(late.turn()) for _ in range(4)]
    assert late.started == [row["run_id"] for row in expected]
    assert [each["run"] for each in read if each["run"] > _MOST] == []


_LEASES = """
WITH r AS (
    INSERT INTO run (run_id, lane, seq, definition, queued_at, cause)
    SELECT gen_random_uuid(), id, last_seq + 1, id, now(), 'manual' FROM lane
    WHERE id BETWEEN $1 AND $2 RETURNING lane, run_id
)
UPDATE lane SET leased = true, place = 0, ready_at = now() + interval '1 day', lease_until = now() + interval '1 day',
    token = 7, node_id = 'busy', run_id = r.run_id FROM r WHERE id = r.lane RETURNING r.run_id
"""


async def _renewed(reader: Reader, share: int) -> tuple[float, list[tuple[int, int, UUID | None]], list[UUID]]:
    """How long it takes for one in `share` of the leases, what is told, and which those are; taken back."""
    session, transaction = reader.aside, reader.aside.transaction()
    await transaction.start()
    await session.execute(f"SET LOCAL search_path TO {_SCHEMA}")
    runs = [row["run_id"] for row in await session.fetch(_LEASES, _LEASED[0], _LEASED[len(_LEASED) // share - 1])]
    listed = [*runs[1:], new_run_id()]
    began = time.monotonic()
    answer = await session.fetch(
        reader.backend._sql.renew, None, "busy", ["ok"], 1, 1, "host", 1, LEASE, datetime.now(UTC), listed,
        [7] * len(runs), [LEASE] * len(runs),
    )  # fmt: skip
    took = time.monotonic() - began
    await transaction.rollback()
    await session.execute(f"VACUUM {_SCHEMA}.lane")  # of what never was
    return took, [(row["what"], row["number"], row["run_id"]) for row in answer], runs


async def test_renewing_very_many_leases_compares_each_with_none_of_the_others(reader: Reader) -> None:
    """In the square of their number eight times as many took 64 times as long, their lanes locked meanwhile."""
    ratios: list[float] = []
    for _ in range(3):
        few, *_ = await _renewed(reader, 8)
        took, told, runs = await _renewed(reader, 1)
        assert told == [(1, len(runs), None), (3, 0, runs[0]), (0, 0, None)]
        ratios.append(took / few)
    assert min(ratios) < 24


@asynccontextmanager
async def _somebody_reads() -> AsyncGenerator[None]:
    backup = await asyncpg.connect(postgres_url())
    try:
        await backup.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM plans.setting")
        yield
    finally:
        await backup.close()


@pytest.mark.parametrize("at_once", [1, 300], ids=["settled and claimed", "carried on"])
async def test_a_job_that_runs_all_day_reads_none_of_the_runs_it_has_forgotten(reader: Reader, at_once: int) -> None:
    """They stay in the index until a vacuum, and that may have to wait for somebody who reads: a backup, perhaps."""
    busy = _Worker(reader.backend, "busy", keep=2)
    async with _somebody_reads():
        for _ in range(0, 300, at_once):
            await reader.backend.enqueue(_triggers(*[_BUSY] * at_once))
            for _ in range(at_once):
                await busy.turn()
        await reader.backend.enqueue(_triggers(_BUSY))
        read = await reader.read(busy.turn())
        kept = await reader.aside.fetchval("SELECT count(*) FROM plans.history WHERE lane = $1", _BUSY)
        await busy.turn()
    assert len(busy.started) == 301
    assert kept == 2
    assert 0 < read["history_lane"] <= 100


async def test_retention_that_has_found_a_batch_does_not_look_for_more(reader: Reader) -> None:
    """Else a million keys that have expired would take a thousand looks at all lanes and all decisions."""
    await reader.aside.execute(
        "INSERT INTO plans.held_key SELECT 'trigger', 1, 'old ' || n, gen_random_uuid(), now() - interval '1 day' "
        f"FROM generate_series(1, {_BATCH}) n"
    )
    read = await reader.read(reader.backend.prune(Prune(1, timedelta(days=1000), limit=_BATCH)))
    assert read["held_key"]
    assert read["lane"] == read["decision"] == read["decision_lane"] == 0
