"""A stored row that cannot be decoded costs its own run or job alone; everything else goes on. Rules: SAFE-1."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota import Event, HandlerRegistry, JobContext, JobDefinition, Manual, OnEvent, RunState, Scheduler
from rota.backend import (
    FACTS_WANTED,
    Audience,
    Claim,
    EventLimits,
    JobKey,
    JobQuery,
    Registration,
    RunQuery,
    Settlement,
)
from rota.backend.messages import FactKind
from rota.errors import OutcomeUnknown
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome
from rota_backends.postgres import PostgresBackend
from tests.patience import PATIENCE
from tests.postgres.driving import LEASE, claim, register, remove, request, sql, success, trigger
from tests.servers import SCHEMA, fresh_store, postgres_url

_BAD = JobKey("default", "bad")
_BODIES = [
    "",
    "{",
    "null",
    '{"job_id":5}',
    '{"job_id":"bad"}',
    '{"job_id":"bad","handler_name":["s3cret"]}',
    "[" * 9999,
]
_AT = datetime(2026, 1, 1, tzinfo=UTC)


async def _reopened() -> PostgresBackend:
    """Another backend, which remembers nothing."""
    made = PostgresBackend(postgres_url(), schema=SCHEMA)
    await made.open()
    return made


async def _corrupt_definition(body: str = "{") -> None:
    await sql("UPDATE definition SET body = $1 WHERE lane = (SELECT lane FROM job WHERE job_id = 'bad')", body)


def _dead(claimed: Claim) -> Settlement:
    return Settlement(
        claimed.key, claimed.run_id, claimed.token, "node", RunState.DEAD, AttemptOutcome.FAILED,
        (FactKind.FAILED, FactKind.DEAD_LETTERED), claimed.unreadable, claimed.unreadable,
    )  # fmt: skip


@pytest.mark.parametrize("body", _BODIES)
async def test_a_run_whose_definition_cannot_be_read_says_so_and_the_others_are_claimed(
    backend: PostgresBackend, body: str
) -> None:
    await register(backend, "bad", "good")
    for name in ("bad", "good"):
        await trigger(backend, name)
    await _corrupt_definition(body)
    store = await _reopened()
    claims = {each.key.job_id: each for each in (await claim(store)).claims}
    assert claims["good"].unreadable is None
    assert "its definition" in (claims["bad"].unreadable or "")
    assert "s3cret" not in (claims["bad"].unreadable or "")
    assert (claims["bad"].definition.handler_name, claims["bad"].key) == ("ok", _BAD)
    settled, _ = await store.settle([_dead(claims["bad"]), success(claims["good"])])
    assert settled == [True, True]
    (letter,) = await store.runs(RunQuery("default", dead_letters=True))
    assert letter.job_id == "bad"
    await store.close()


@pytest.mark.parametrize("event", ["", "{", '{"caused_by": "order-17"}', '{"source_module": "shop"}'])
async def test_a_run_whose_event_cannot_be_read_says_so_and_the_others_are_claimed(
    backend: PostgresBackend, event: str
) -> None:
    for name in ("bad", "good"):
        await backend.register(Registration(JobDefinition(name, "ok", OnEvent("shop", "Ordered")), 0, new_run_id()))
    await backend.notify([Event("shop", "Ordered")], EventLimits(timedelta(hours=1), 10, 16))
    await sql("UPDATE run SET event = $1 WHERE lane = (SELECT lane FROM job WHERE job_id = 'bad')", event)
    claims = {each.key.job_id: each for each in (await claim(backend)).claims}
    assert "its event" in (claims["bad"].unreadable or "")
    assert claims["bad"].event is None
    assert claims["good"].unreadable is None
    assert claims["good"].event is not None


async def test_a_run_of_an_unknown_cause_says_so(backend: PostgresBackend) -> None:
    await register(backend, "bad", "good")
    for name in ("bad", "good"):
        await trigger(backend, name)
    await sql("UPDATE run SET cause = 'whim' WHERE lane = (SELECT lane FROM job WHERE job_id = 'bad')")
    claims = {each.key.job_id: each.unreadable for each in (await claim(backend)).claims}
    assert claims == {"good": None, "bad": "the stored run cannot be read: its cause is unknown"}
    assert {run.job_id for name in ("bad", "good") for run in await backend.runs(RunQuery("default", name))} == {
        "bad",
        "good",
    }


async def test_a_run_whose_definition_is_gone_ends_as_a_dead_letter(backend: PostgresBackend) -> None:
    await register(backend, "bad", "good")
    for name in ("bad", "good"):
        await trigger(backend, name)
    store = await _reopened()
    await sql("DELETE FROM definition WHERE lane = (SELECT lane FROM job WHERE job_id = 'bad')")
    claims = (await claim(store)).claims
    bad = next(each for each in claims if each.unreadable is not None)
    good = next(each for each in claims if each.unreadable is None)
    assert bad.unreadable == "the stored run cannot be read: its definition is missing"
    settled, _ = await store.settle([_dead(bad), success(good)])
    assert settled == [True, True]
    (letter,) = await store.runs(RunQuery("default", dead_letters=True))
    assert (letter.job_id, letter.handler_name) == ("bad", "unknown")
    await store.close()


async def test_a_lease_that_ended_on_an_unreadable_run_is_listed_with_the_others(backend: PostgresBackend) -> None:
    await register(backend, "bad", "good")
    for name in ("bad", "good"):
        await trigger(backend, name)
    await claim(backend, "another")
    await _corrupt_definition()
    await sql("UPDATE lane SET ready_at = now() - interval '1 hour', lease_until = now() - interval '1 hour'")
    store = await _reopened()
    ended = {each.key.job_id: each.unreadable is None for each in (await claim(store)).expired}
    assert ended == {"bad": False, "good": True}
    await store.close()


async def test_ticks_of_other_jobs_are_due(backend: PostgresBackend) -> None:
    names = [f"bad {number}" for number in range(5)]
    await register(backend, *names, "good")
    await sql("UPDATE job SET next_due = $1", _AT)
    await sql("UPDATE definition SET body = '{' WHERE lane <> (SELECT lane FROM job WHERE job_id = 'good')")
    store = await _reopened()
    for limit in (1, 2, 6, 100):
        assert [job.key.job_id for job in (await store.due(limit)).jobs] == ["good"]
    await store.close()


async def test_pages_of_jobs_leave_it_out_and_are_full_all_the_same(backend: PostgresBackend) -> None:
    await register(backend, "a", "b", "bad", "c", "d")
    await _corrupt_definition()
    store = await _reopened()
    seen: list[str] = []
    while page := await store.jobs(JobQuery("default", 2, seen[-1] if seen else None)):
        seen += [job.definition.job_id for job in page]
    assert seen == ["a", "b", "c", "d"]
    await store.close()


async def test_an_unreadable_job_can_be_scheduled_again(backend: PostgresBackend) -> None:
    await register(backend, "bad")
    await _corrupt_definition()
    store = await _reopened()
    standing = await store.standing(_BAD)
    assert standing.job is None
    again = Registration(JobDefinition("bad", "ok", Manual()), standing.revision, new_run_id())
    assert (await store.register(again)).value == "stored"
    assert (await store.standing(_BAD)).job is not None
    await store.close()


async def test_the_census_names_unreadable_jobs_until_they_are_whole_or_gone(backend: PostgresBackend) -> None:
    await register(backend, "bad", "good")
    assert (await backend.census()).unreadable == ()
    await _corrupt_definition()
    for scope in (None, "default"):
        (named,) = (await backend.census(scope)).unreadable
        assert named.startswith("'bad' in scope 'default': its definition is not JSON")
    assert (await backend.census("another")).unreadable == ()
    await remove(backend, "bad")
    assert (await backend.census()).unreadable == ()


@pytest.mark.parametrize(
    "damage",
    [
        "cause = 'whim'", "state = 'odd'", "outcome = 'odd'", """earlier = '{"odd": 1}'""", "earlier = '[[1]]'",
        """earlier = '[[1, "no time", null, "failed", null, "n", 1]]'""",
    ],
)  # fmt: skip
async def test_history_shows_a_damaged_run_among_the_others(backend: PostgresBackend, damage: str) -> None:
    await register(backend, "job")
    await trigger(backend, "job", 2)
    first = (await claim(backend)).claims
    _, claimed = await backend.settle([success(each) for each in first], request("node", 1))
    assert claimed is not None
    await backend.settle([success(each) for each in claimed.claims])
    await sql(f"UPDATE history SET {damage} WHERE run_id = $1", first[0].run_id)
    runs = await backend.runs(RunQuery("default", "job"))
    assert [run.reason is None for run in runs] == [True, False]
    assert (runs[1].reason or "").startswith("the stored run cannot be read")
    assert await backend.runs(RunQuery("default", run_id=first[0].run_id)) == [runs[1]]


async def test_decisions_leave_a_damaged_one_out(backend: PostgresBackend) -> None:
    await register(backend, "job")
    lane = (await sql("SELECT lane FROM job"))[0][0]
    for kind in ("skipped", "odd", "missed"):
        await sql(
            "INSERT INTO decision (lane, first_at, last_at, count, kind) VALUES ($1, $2, $2, 1, $3)", lane, _AT, kind
        )
    assert [each.kind.value for each in await backend.decisions(JobKey("default", "job"))] == ["missed", "skipped"]


@pytest.mark.parametrize("damage", ["kind = 'Odd'", "cause = ARRAY['whim']"])
async def test_facts_that_cannot_be_read_are_set_aside_and_the_next_ones_are_told(
    backend: PostgresBackend, damage: str
) -> None:
    await register(backend, "job")
    await backend.setting(FACTS_WANTED, 0, 1)
    await trigger(backend, "job")
    (claimed,) = (await claim(backend)).claims
    await backend.settle([success(claimed)])
    store = await _reopened()
    await sql(f"UPDATE outbox SET {damage} WHERE kind = 'JobTriggered'")
    facts = await store.outbox(Audience.EVENTS, "node", limit=1)
    assert [fact.kind for fact in facts or ()] == [FactKind.SUCCEEDED]
    assert (await store.census()).set_aside == 1
    await store.close()


async def test_facts_of_an_unreadable_job_are_told_under_its_name(backend: PostgresBackend) -> None:
    await register(backend, "bad")
    await backend.setting(FACTS_WANTED, 0, 1)
    await trigger(backend, "bad")
    await claim(backend)
    await _corrupt_definition()
    store = await _reopened()
    facts = await store.outbox(Audience.EVENTS, "node")
    assert [(fact.key, fact.kind) for fact in facts or ()] == [(_BAD, FactKind.TRIGGERED)]
    await store.close()


async def test_a_node_works_on_beside_unreadable_rows() -> None:
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: JobContext) -> None:
        return None

    async with Scheduler(PostgresBackend(fresh_store(), schema=SCHEMA), HandlerRegistry(), concurrency=0) as client:
        for name in ("bad", "good"):
            await client.schedule(JobDefinition(name, "ok", Manual()))
        await client.trigger_once("bad")
        first = await client.trigger_once("good")
        await _corrupt_definition()
        async with Scheduler(PostgresBackend(postgres_url(), schema=SCHEMA), handlers, lease=LEASE) as node:
            for run_id in (first, await node.trigger_once("good")):
                assert (await node.wait(run_id, timedelta(seconds=PATIENCE))).state is RunState.SUCCEEDED


async def test_an_instant_that_python_cannot_hold_is_an_error_of_ours(backend: PostgresBackend) -> None:
    await register(backend, "job")
    await sql("UPDATE job SET decided = '20000-01-01'")
    with pytest.raises(OutcomeUnknown, match="cannot hold"):
        await backend.standing(JobKey("default", "job"))
    assert (await backend.census()).jobs == 1
