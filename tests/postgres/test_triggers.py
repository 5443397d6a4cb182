"""Many triggers in one statement are stored and refused as each would be alone.

Rules: MANUAL-1, KEY-4, RETRY-5, TX-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import IdempotencyKey, OutcomeUnknown, StoreUnavailable
from rota.backend import REPLAY_MEMORY, FactKind, JobKey, NewRun, PauseChange, Refusal, Settlement
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_backends.postgres import PostgresBackend
from tests.postgres.driving import HASTY, claim, register, sql, success, trigger
from tests.servers import SCHEMA, postgres_url

_LIMIT = 4
_NAMES = ("idle", "queued", "running", "paused", "changed", "removed", "unknown")
# Which job, and whether the same trigger was stored before.
_TRIGGERS = st.lists(st.tuples(st.sampled_from(_NAMES), st.booleans()), min_size=5, max_size=14)


def _trigger(name: str) -> NewRun:
    return NewRun(JobKey("default", name), new_run_id(), Cause.MANUAL, _LIMIT, payload=name.encode())


async def _furnish(backend: PostgresBackend, triggers: Sequence[tuple[str, bool]]) -> list[NewRun]:
    """Lanes of every kind; and the batch, some of it stored already, some of that finished."""
    await backend._warm_up.stop()  # it looks at tables in another order than TRUNCATE locks them
    await sql(
        "TRUNCATE definition, job, band, lane, run, history, outbox, decision, node, hand RESTART IDENTITY CASCADE"
    )
    await register(backend, *_NAMES[:-1])
    await backend.enqueue([_trigger("running")])
    (running,) = (await claim(backend)).claims
    batch = [_trigger(name) for name, _ in triggers]
    for each in [each for each, (name, before) in zip(batch, triggers, strict=True) if before and name == "idle"][:1]:
        await backend.enqueue([each])
        await backend.settle([success(done) for done in (await claim(backend)).claims])
    await backend.enqueue([_trigger("queued")])
    stored = [each for each, (name, before) in zip(batch, triggers, strict=True) if before and name == "queued"][:2]
    stored += [each for each, (name, before) in zip(batch, triggers, strict=True) if before and name == "removed"][:2]
    for each in stored:
        await backend.enqueue([each])
    await sql("UPDATE job SET definition = NULL WHERE job_id = 'removed'")
    await backend.pause(PauseChange(JobKey("default", "paused"), "why not", 1, None, None, ()))
    await sql("UPDATE lane SET definition = 0 WHERE id = (SELECT lane FROM job WHERE job_id = 'changed')")
    assert running.key.job_id == "running"
    return batch


async def _state(batch: Sequence[NewRun]) -> list[Any]:
    numbers = {each.run_id: number for number, each in enumerate(batch)}
    runs = await sql(
        "SELECT job_id, run_id, seq, r.definition, start_at, cause, payload FROM run r JOIN job USING (lane)"
    )
    lanes = await sql(
        "SELECT job_id, place, band, l.definition, is_open, leased, unfinished, last_seq, ready_at IS NULL AS idle "
        "FROM lane l JOIN job ON lane = id ORDER BY job_id"
    )
    return [
        sorted((row["job_id"], row["seq"], numbers.get(row["run_id"], -1), *tuple(row)[3:]) for row in runs),
        [tuple(row) for row in lanes],
    ]


def _numbered(batch: Sequence[NewRun], answers: Sequence[UUID | Refusal]) -> list[Any]:
    return [
        answer is each.run_id or answer == each.run_id or answer for each, answer in zip(batch, answers, strict=True)
    ]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_TRIGGERS)
async def test_a_batch_has_the_same_effect_as_its_triggers_one_by_one(
    backend: PostgresBackend, triggers: list[tuple[str, bool]]
) -> None:
    together = await _furnish(backend, triggers)
    at_once = _numbered(together, await backend.enqueue(together))
    state_at_once = await _state(together)
    apart = await _furnish(backend, triggers)
    one_by_one = _numbered(apart, [(await backend.enqueue([each]))[0] for each in apart])
    assert at_once == one_by_one
    assert state_at_once == await _state(apart)


async def test_a_repeated_batch_is_answered_like_the_first_after_its_job_was_removed(backend: PostgresBackend) -> None:
    await register(backend, "idle")
    batch = [_trigger("idle") for _ in range(5)]
    first = await backend.enqueue(batch)
    assert first == [*(each.run_id for each in batch[:_LIMIT]), Refusal.LANE_FULL]
    await sql("UPDATE job SET definition = NULL")
    assert await backend.enqueue(batch) == [*first[:_LIMIT], Refusal.NO_SUCH_JOB]


async def test_a_key_held_by_the_run_itself_stores_nothing_in_a_transaction_either(backend: PostgresBackend) -> None:
    await register(backend, "job")
    new = NewRun(JobKey("default", "job"), new_run_id(), Cause.MANUAL, 100)
    new.idempotency_key = IdempotencyKey("key", timedelta(hours=1))
    await backend.enqueue([new])
    await sql("DELETE FROM run")  # as if it had ended, and retention had forgotten it
    connection = await asyncpg.connect(postgres_url())
    try:
        async with connection.transaction():
            assert await backend.enqueue([new], within=connection) == [new.run_id]
    finally:
        await connection.close()
    assert await sql("SELECT FROM arrival") == await sql("SELECT FROM run") == []


async def test_a_replay_is_remembered_for_as_long_as_the_port_says(backend: PostgresBackend) -> None:
    await register(backend, "job")
    await trigger(backend, "job")
    (dead,) = (await claim(backend)).claims
    settlement = Settlement(
        dead.key, dead.run_id, dead.token, "node", RunState.DEAD, AttemptOutcome.FAILED, (FactKind.DEAD_LETTERED,)
    )
    await backend.settle([settlement])
    replay = NewRun(dead.key, new_run_id(), Cause.REPLAY, 100, replay_of=dead.run_id)
    assert await backend.enqueue([replay]) == [replay.run_id]
    (row,) = await sql("SELECT until - queued_at FROM held_key JOIN run ON run_id = holder WHERE kind = 'replay'")
    assert row[0] == REPLAY_MEMORY


async def test_the_same_trigger_twice_in_a_batch_is_stored_once(backend: PostgresBackend) -> None:
    await register(backend, "job")
    new = NewRun(JobKey("default", "job"), new_run_id(), Cause.MANUAL, 100)
    assert await backend.enqueue([new] * 6) == [new.run_id] * 6
    assert [tuple(row) for row in await sql("SELECT unfinished, last_seq FROM lane")] == [(1, 1)]


@pytest.mark.parametrize("together", [True, False])
async def test_triggers_of_a_batch_keep_their_own_values(backend: PostgresBackend, together: bool) -> None:
    await register(backend, "job")
    await register(backend, "job", scope_id="other")
    own = [("default", 9, None), ("other", 1, b""), ("default", 9, b"x"), ("other", 9, None), ("other", 2, b"y")]
    batch = [NewRun(JobKey(scope, "job"), new_run_id(), Cause.MANUAL, most, payload) for scope, most, payload in own]
    if not together:
        batch[0].delay = timedelta(hours=1)  # so each is stored by a statement of its own
    answers = await backend.enqueue(batch)
    assert answers == [*(each.run_id for each in batch[:4]), Refusal.LANE_FULL]
    rows = await sql("SELECT run_id, scope_id, payload, start_at IS NULL FROM run JOIN job USING (lane) ORDER BY seq")
    expected = {each.run_id: (scope, payload) for each, (scope, _, payload) in zip(batch[:4], own, strict=False)}
    assert {row["run_id"]: (row["scope_id"], row["payload"]) for row in rows} == expected


async def _hasty() -> PostgresBackend:
    made = PostgresBackend(postgres_url(), schema=SCHEMA, timeout=HASTY)
    await made.open()
    return made


async def test_a_big_batch_of_which_half_is_stored_is_an_unknown_outcome(backend: PostgresBackend) -> None:
    by_half = {hash(JobKey("default", name)) % 2: name for name in map(str, range(100))}
    await register(backend, *by_half.values())
    hasty, outside = await _hasty(), await asyncpg.connect(postgres_url())
    batch = [NewRun(JobKey("default", by_half[n % 2]), new_run_id(), Cause.MANUAL, 10_000) for n in range(400)]
    async with outside.transaction():
        await outside.execute(
            f'SELECT FROM "{SCHEMA}".lane JOIN "{SCHEMA}".job ON lane = id WHERE job_id = $1 FOR UPDATE', by_half[1]
        )
        with pytest.raises(OutcomeUnknown, match="a part may be stored"):
            await hasty.enqueue(batch)
    assert [row["job_id"] for row in await sql("SELECT DISTINCT job_id FROM run JOIN job USING (lane)")] == [by_half[0]]
    assert await hasty.enqueue(batch) == [each.run_id for each in batch]
    assert [tuple(row) for row in await sql("SELECT unfinished, last_seq FROM lane")] == [(200, 200)] * 2
    await outside.close()
    await hasty.close()


async def test_a_batch_with_one_stored_key_is_an_unknown_outcome_when_another_waits(backend: PostgresBackend) -> None:
    await register(backend, "job")
    hasty, outside = await _hasty(), await asyncpg.connect(postgres_url())
    first, second = (NewRun(JobKey("default", "job"), new_run_id(), Cause.MANUAL, 100) for _ in range(2))
    first.idempotency_key, second.idempotency_key = (IdempotencyKey(name, timedelta(hours=1)) for name in "ab")
    async with outside.transaction():
        theirs = NewRun(second.key, new_run_id(), Cause.MANUAL, 100, idempotency_key=second.idempotency_key)
        await hasty.enqueue([theirs], within=outside)
        with pytest.raises(OutcomeUnknown, match="a part may be stored"):
            await hasty.enqueue([first, second])
        with pytest.raises(StoreUnavailable):
            await hasty.enqueue([second])
    assert await hasty.enqueue([first, second]) == [first.run_id, theirs.run_id]
    await outside.close()
    await hasty.close()
