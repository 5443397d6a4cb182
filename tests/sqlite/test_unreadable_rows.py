"""SAFE-1: a stored row that cannot be decoded costs its own run alone.

Every column that is decoded is damaged with SQL. Two jobs have a run each; one of them is damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rota import Cron, Event, JobDefinition, Manual, OnEvent, RunState, VirtualClock
from rota.backend import (
    FACTS_WANTED,
    Audience,
    Claim,
    EventLimits,
    FactKind,
    JobKey,
    JobQuery,
    LeaseRef,
    NewRun,
    NodeInfo,
    Prune,
    Registration,
    RunQuery,
    Settlement,
)
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause
from rota_backends.sqlite import SqliteBackend
from tests.sqlite.port_calls import HANDLERS, HOUR, request, succeeded

BAD, GOOD = JobKey("default", "bad"), JobKey("default", "good")
LIMITS = EventLimits(timedelta(days=1), 100, 16)
NODE = NodeInfo("node", HANDLERS)
_BAD_LANE = "(SELECT id FROM rota_job WHERE job_id = 'bad')"
_ORDER_17 = """json_set(event, '$.caused_by', 'order-17')"""


class Store:
    """A file whose rows are damaged between two openings, on a clock that stands still."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[SqliteBackend]:
        backend = SqliteBackend(self.path, clock=self.clock, synchronous="OFF")
        await backend.open()
        try:
            yield backend
        finally:
            await backend.close()

    def damage(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            assert db.execute(statement).rowcount > 0, statement


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    """Each job has a run of an event, which waits."""
    made = Store(tmp_path / "jobs.db")
    async with made.opened() as backend:
        await backend.setting(FACTS_WANTED, 0, 1)
        await backend.renew(NODE, [])
        for key in (BAD, GOOD):
            await _register(backend, key.job_id, OnEvent("shop", "Ordered"))
        assert len((await backend.notify([Event("shop", "Ordered")], LIMITS))[0]) == 2
    return made


async def _register(backend: SqliteBackend, job_id: str, trigger: Any, **more: Any) -> None:
    record = await backend.standing(JobKey("default", job_id))
    definition = JobDefinition(job_id, "ok", trigger)
    await backend.register(Registration(definition, record.revision, new_run_id(), **more))


def dead(claim: Claim) -> Settlement:
    return Settlement(
        claim.key, claim.run_id, claim.token, "node", RunState.DEAD, AttemptOutcome.FAILED,
        (FactKind.FAILED, FactKind.DEAD_LETTERED), error=claim.unreadable,
    )  # fmt: skip


async def _claimed(backend: SqliteBackend) -> dict[str, Claim]:
    return {claim.key.job_id: claim for claim in (await backend.claim(request())).claims}


async def _everything_else_works(backend: SqliteBackend) -> None:
    assert [job.definition.job_id for job in await backend.jobs(JobQuery("default", limit=1, after="f"))] == ["good"]
    assert len(await backend.runs(RunQuery("default", "good"))) == 1
    assert len(await backend.runs(RunQuery("default", "bad"))) <= 1
    assert (await backend.due(10)).jobs == []
    assert (await backend.census()).jobs == 2
    await backend.renew(NODE, [])
    await backend.prune(Prune(100, HOUR))
    await backend.runs(RunQuery("default", dead_letters=True))
    assert await backend.outbox(Audience.EVENTS, "node") is not None
    assert await backend.outbox(Audience.ADMINS, "node") is not None


RUN_COLUMNS = [
    ("run_id", "x'0102'"),
    ("run_id", "'no id'"),
    ("definition", "999"),
    ("definition", "'x'"),
    ("payload", "'text'"),
    ("cause", "99"),
    ("cause", "'x'"),
    ("due", "'x'"),
    ("due", "9223372036854775807"),
    ("event", "'{'"),
    ("event", "'[]'"),
    ("event", "7"),
    ("event", _ORDER_17),
    ("event", "json_set(event, '$.data', 5)"),
    ("definition", "x'ff00'"),
    ("depth", "'x'"),
    ("attempt", "'x'"),
    ("first_started_at", "'x'"),
]


@pytest.mark.parametrize(("column", "value"), RUN_COLUMNS)
async def test_a_run_with_an_unreadable_column_is_claimed_to_be_dead_lettered(
    store: Store, column: str, value: str
) -> None:
    store.damage(f"UPDATE rota_run SET {column} = {value} WHERE lane = {_BAD_LANE}")
    async with store.opened() as backend:
        await _everything_else_works(backend)
        claims = await _claimed(backend)
        assert claims["good"].unreadable is None
        unreadable = claims["bad"].unreadable
        assert unreadable is not None
        assert column in unreadable
        assert "order-17" not in unreadable, "a stored value may be secret"
        assert (await backend.settle([succeeded(claims["good"]), dead(claims["bad"])]))[0] == [True, True]
        await _everything_else_works(backend)
        (letter,) = await backend.runs(RunQuery("default", dead_letters=True))
        assert (letter.job_id, letter.state, letter.error) == ("bad", RunState.DEAD, unreadable)
        assert await backend.discard(letter.run_id, "default", new_run_id())


@pytest.mark.parametrize("how", ["a repeat", "another process", "after its lease"])
async def test_an_unreadable_run_is_handed_over_again_as_unreadable(store: Store, how: str) -> None:
    store.damage(f"UPDATE rota_run SET cause = 'x' WHERE lane = {_BAD_LANE}")
    async with store.opened() as backend:
        first = {claim.key.job_id: claim for claim in (await backend.claim(request(number=1))).claims}
        if how == "a repeat":
            again = {claim.key.job_id: claim for claim in (await backend.claim(request(number=1))).claims}
            assert again["bad"].unreadable == first["bad"].unreadable is not None
            return
    if how == "after its lease":
        await store.clock.advance(2 * HOUR)
    async with store.opened() as backend:
        if how == "after its lease":
            expired = {claim.key.job_id: claim for claim in (await backend.claim(request(number=2))).expired}
            assert expired["bad"].unreadable is not None
        assert (await backend.settle([dead(first["bad"])]))[0] == [True]
        assert {fact.kind for fact in await backend.outbox(Audience.EVENTS, "node") or ()} >= {FactKind.DEAD_LETTERED}


@pytest.mark.parametrize(
    "body", ["'{'", "'[]'", "7", "x'00'", "json_set(body, '$.handler_name', 5)", "json_remove(body, '$.trigger')",
             "json_set(body, '$.job_id', 'good')", "replace(body, 'Ordered', '')"]
)  # fmt: skip
async def test_a_definition_that_cannot_be_read_costs_its_own_job_alone(store: Store, body: str) -> None:
    store.damage(f"UPDATE rota_definition SET body = {body} WHERE job = {_BAD_LANE}")
    async with store.opened() as backend:
        await _everything_else_works(backend)
        claims = await _claimed(backend)
        assert claims["good"].unreadable is None
        assert "definition" in (claims["bad"].unreadable or "")
        assert (claims["bad"].definition.job_id, claims["bad"].definition.handler_name) == ("bad", "ok")
        (told,) = (await backend.census()).unreadable
        assert told.startswith("'bad' in scope 'default': the definition cannot be read")
        assert (await backend.census("other")).unreadable == ()
        assert (await backend.settle([dead(claims["bad"])]))[0] == [True]
        events = [Event("shop", "Ordered"), Event("_platform.jobs", "JobSucceeded", subject="good")]
        assert len((await backend.notify(events, LIMITS))[0]) == 2
        facts = await backend.outbox(Audience.EVENTS, "node")
        assert facts is not None
        assert {fact.subject for fact in facts} == {"bad", "good"}
        letters = await backend.outbox(Audience.ADMINS, "node")
        assert letters is not None
        (letter,) = letters
        assert (letter.key, letter.run_id) == (BAD, claims["bad"].run_id)


async def test_a_job_that_cannot_be_read_is_repaired_by_scheduling_it_again(store: Store) -> None:
    store.damage(f"UPDATE rota_definition SET body = '{{' WHERE job = {_BAD_LANE}")
    async with store.opened() as backend:
        assert (await backend.standing(BAD)).job is None
        await _register(backend, "bad", Manual())
        assert (await backend.standing(BAD)).job is not None
        assert (await backend.census()).unreadable == ()
        new = NewRun(BAD, new_run_id(), Cause.MANUAL, 10)
        claims = await _claimed(backend)
        assert claims["bad"].unreadable, "the run that was queued under the damaged definition"
        assert (await backend.settle([dead(claims["bad"])]))[0] == [True]
        await backend.enqueue([new])
        assert (await _claimed(backend))["bad"].unreadable is None


@pytest.mark.parametrize("column", ["next_due", "decided", "revision"])
async def test_a_job_row_that_cannot_be_read_is_named_by_the_census(store: Store, column: str) -> None:
    store.damage(f"UPDATE rota_job SET {column} = 'x' WHERE job_id = 'bad'")
    async with store.opened() as backend:
        await _everything_else_works(backend)
        assert len((await backend.census()).unreadable) == 1
        assert set(await _claimed(backend)) == {"good", "bad"}


async def test_an_unreadable_job_keeps_no_other_job_from_being_due(store: Store) -> None:
    async with store.opened() as backend:
        now = store.clock.now()
        for key in (BAD, GOOD):
            await _register(backend, key.job_id, Cron("* * * * *"), next_due=now)
    store.damage(f"UPDATE rota_definition SET body = '{{' WHERE is_current = 1 AND job = {_BAD_LANE}")
    async with store.opened() as backend:
        assert [job.key for job in (await backend.due(1)).jobs] == [GOOD]


HISTORY_COLUMNS = [
    ("run_id", "x'01'"), ("definition", "999"), ("cause", "99"), ("state", "'x'"), ("queued_at", "'x'"), ("due", "'x'"),
    ("event", "'{'"), ("replay_of", "'x'"), ("covers_from", "'x'"), ("covers_to", "'x'"), ("missed_count", "'x'"),
    ("attempt", "'x'"), ("first_started_at", "'x'"), ("attempts", "'{'"), ("started_at", "'x'"),
    ("outcome", "99"), ("records", "'x'"), ("missed_count", "-5"), ("attempt", "-5"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), HISTORY_COLUMNS)
async def test_a_finished_run_that_cannot_be_read_is_listed_as_far_as_it_can(
    store: Store, column: str, value: str
) -> None:
    async with store.opened() as backend:
        claims = await _claimed(backend)
        await backend.settle([dead(claims["bad"]), dead(claims["good"])])
    store.damage(f"UPDATE rota_history SET {column} = {value} WHERE lane = {_BAD_LANE}")
    async with store.opened() as backend:
        await _everything_else_works(backend)
        letters = await backend.runs(RunQuery("default", dead_letters=True))
        assert {each.job_id for each in letters} == {"bad", "good"}
        (run,) = await backend.runs(RunQuery("default", "bad"))
        assert run.state is RunState.DEAD
        assert isinstance(run.run_id, UUID)


LANE_COLUMNS = [
    "rank", "queue", "handler", "ready_at", "wake_at", "head", "pinned", "lease_until", "token", "number", "removed",
    "settled_token", "unfinished", "delayed", "kept", "definition", "paused", "last_attempt_at",
]  # fmt: skip


@pytest.mark.parametrize("column", LANE_COLUMNS)
async def test_a_damaged_lane_keeps_no_other_job_waiting(store: Store, column: str) -> None:
    store.damage(f"UPDATE rota_lane SET {column} = x'00' WHERE id = {_BAD_LANE}")
    async with store.opened() as backend:
        claims = await _claimed(backend)
        assert claims["good"].unreadable is None
        assert (await backend.settle([succeeded(claims["good"])]))[0] == [True]
        await _everything_else_works(backend)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rota_lane SET wake_at = 9223372036854775807 WHERE id = {bad}",
        "UPDATE rota_lane SET head = NULL WHERE id = {bad}",
        "DELETE FROM rota_lane WHERE id = {bad}",
        "DELETE FROM rota_job WHERE id = {bad}",
        "DELETE FROM rota_run WHERE lane = {bad}",
        "DELETE FROM rota_definition WHERE job = {bad}",
    ],
)
async def test_rows_deleted_or_changed_by_hand_keep_no_other_job_waiting(store: Store, statement: str) -> None:
    store.damage(statement.format(bad=_BAD_LANE))
    async with store.opened() as backend:
        claims = await _claimed(backend)
        assert claims["good"].unreadable is None
        assert (await backend.settle([succeeded(each) for each in claims.values()]))[0] == [True] * len(claims)
        await _everything_else_works(backend)


@pytest.mark.parametrize("statement", ["DELETE FROM rota_definition", "UPDATE rota_job SET definition = NULL"])
async def test_an_event_reaches_the_jobs_beside_one_whose_definition_is_missing(store: Store, statement: str) -> None:
    async with store.opened() as backend:
        for key in (BAD, GOOD):
            await _register(backend, key.job_id, OnEvent("shop", "Ordered"))
    column = "id" if "rota_job" in statement else "job"
    store.damage(f"{statement} WHERE {column} = {_BAD_LANE}")
    async with store.opened() as backend:
        (made,) = await backend.notify([Event("shop", "Ordered")], LIMITS)
        assert {run.run_id for run in await backend.runs(RunQuery("default", "good"))} & set(made)


async def test_a_lane_whose_lease_is_no_number_is_made_anew_and_its_run_starts_again(store: Store) -> None:
    async with store.opened() as backend:
        before = await _claimed(backend)
        await backend.settle([succeeded(before["good"])])
    store.damage(f"UPDATE rota_lane SET lease_until = 'x' WHERE id = {_BAD_LANE}")
    async with store.opened() as backend:
        again = (await _claimed(backend))["bad"]
        assert again.run_id == before["bad"].run_id
        assert again.token > before["bad"].token
        assert (await backend.settle([succeeded(before["bad"])]))[0] == [False]
        assert (await backend.settle([succeeded(again)]))[0] == [True]


@pytest.mark.parametrize("value", ["'x'", "'{'"])
async def test_attempts_that_cannot_be_read_do_not_keep_a_run_from_being_retried(store: Store, value: str) -> None:
    store.damage(f"UPDATE rota_run SET attempts = {value} WHERE lane = {_BAD_LANE}")
    async with store.opened() as backend:
        claim = (await _claimed(backend))["bad"]
        retry = Settlement(
            claim.key, claim.run_id, claim.token, "node", RunState.RETRYING, AttemptOutcome.FAILED, (), wait=HOUR
        )
        assert (await backend.settle([retry]))[0] == [True]
        (run,) = await backend.runs(RunQuery("default", "bad"))
        assert len(run.attempts) == 1


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("UPDATE rota_node SET info = '{'", lambda backend: backend.renew(NODE, [])),
        ("UPDATE rota_run SET start_at = 'x', state = 1", lambda backend: backend.claim(request())),
        ("UPDATE rota_key SET holder = x'01' WHERE kind = 2", lambda backend: backend.prune(Prune(1, HOUR))),
    ],
)
async def test_other_damaged_rows_stop_no_call(
    store: Store, statement: str, call: Callable[[SqliteBackend], Any]
) -> None:
    store.damage(statement)
    async with store.opened() as backend:
        await call(backend)
        await _everything_else_works(backend)


async def test_a_damaged_lock_is_free(store: Store) -> None:
    async with store.opened() as backend:
        assert await backend.lock("one", "a", HOUR) is not None
    store.damage("UPDATE rota_lock SET until = 'x'")
    async with store.opened() as backend:
        assert await backend.lock("one", "b", HOUR) is not None
        assert await backend.lock("one", "c", HOUR) is None


async def test_renewing_goes_on_beside_a_lease_whose_run_cannot_be_read(store: Store) -> None:
    async with store.opened() as backend:
        claims = await _claimed(backend)
    store.damage(f"UPDATE rota_run SET event = '{{' WHERE lane = {_BAD_LANE}")
    async with store.opened() as backend:
        good = claims["good"]
        renewal = await backend.renew(NODE, [LeaseRef(GOOD, good.run_id, good.token, HOUR)])
        assert renewal.lost == []
        assert [ref.key for ref in renewal.orphans] == [BAD]
