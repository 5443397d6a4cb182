"""EVENT-4 and EVENT-6: what the handler sees, how runs queue, and how chains of causes end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from attrs import evolve

from rota.errors import LaneFull
from rota.events import JobNotifyEventStore
from rota.model.definition import RetryPolicy
from rota.model.event import Event
from rota.model.outcome import Failed
from rota.model.run import Cause, RunState
from rota.model.validation import LIFECYCLE_MODULE, PLATFORM_SCOPE
from rota.protocol import JobScheduler
from rota_contracts.clause import clause
from rota_contracts.declare import event, manual, on_event
from rota_contracts.families._reading import only_run, runs_of
from rota_contracts.scene import Scene

DEEPEST = 16  # the default
LATE = timedelta(minutes=10)  # lifecycle events may come late, those of a long chain very late


class EventLaneClauses:
    """EVENT-4: the event in the context, the order, and the limit."""

    @clause("EVENT-4", "the handler sees the event as it was written, in every attempt", uses=("virtual",))
    async def test_the_handler_sees_the_event_unchanged(self, scene: Scene) -> None:
        written = Event(
            "shop", "OrderPlaced", data=b"\x00\xff", subject="Auftrag 17 \U0001f4e6", event_id="id 17",
            occurred_at=datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC),
        )  # fmt: skip
        async with scene.open() as node:
            await node.schedule(on_event(handler="flaky"))
            await scene.write(node, written)
            await scene.advance(seconds=30)
            seen = [each.event for each in scene.journal.of("job")]
            assert [_of(each) for each in seen] == [_of(written)] * 2

    @clause("EVENT-4", "a run that no event caused has no event")
    async def test_a_manual_run_of_an_event_job_has_no_event(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event())
            await scene.settle()
            await scene.run(node, "job")
            assert [each.event is None for each in scene.journal.of("job")] == [False, True]

    @clause("EVENT-4", "runs for a busy job queue in the order in which the events were stored")
    async def test_events_for_a_busy_job_do_not_overtake_each_other(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="hold"))
            ids = [f"order-{number}" for number in (5, 3, 9, 1, 7)]
            await scene.write(node, *(event(event_id=each) for each in ids[:3]))
            for each in ids[3:]:
                await scene.write(node, event(event_id=each))
            await scene.settle()
            await scene.release()
            assert [each.event.event_id for each in scene.journal.of("job") if each.event] == ids

    @clause("EVENT-4", "an event beyond the limit of a job is reported as LaneFull and not run", uses=("scheduler",))
    async def test_a_full_job_takes_no_more_events(self, scene: Scene) -> None:
        told: list[tuple[str, Exception]] = []
        store = JobNotifyEventStore(scene.event_store, lambda event, error: told.append((event.event_id, error)))
        async with scene.open(events=store, lane_limit=3) as node:
            await node.schedule(on_event(handler="hold"))
            for number in range(5):
                await store.write(event(event_id=f"{number}"))
            assert [(event_id, type(error)) for event_id, error in told] == [("3", LaneFull), ("4", LaneFull)]
            assert [run.event_id for run in await runs_of(node)] == ["0", "1", "2"]

    @clause(
        "EVENT-4",
        "an event that was rejected stays rejected, told again or swept, also when there is room",
        uses=("scheduler", "virtual"),
    )
    async def test_a_rejected_event_is_not_run_after_all(self, scene: Scene) -> None:
        async with scene.open(lane_limit=2) as node:
            await node.schedule(on_event(handler="hold"))
            for number in range(3):
                await scene.write(node, event(event_id=f"{number}"))
            await node.cancel((await runs_of(node))[1].run_id)
            await scene.advance(minutes=1)
            with pytest.raises(LaneFull):
                await node.notify(event(event_id="2"))
            await scene.write(node, event(event_id="3"))
            assert [run.event_id for run in await runs_of(node)] == ["0", "1", "3"]

    @clause(
        "EVENT-4",
        "a full job keeps neither the event from other jobs nor other events from any job",
        uses=("scheduler",),
    )
    async def test_a_full_job_does_not_affect_others(self, scene: Scene) -> None:
        async with scene.open(lane_limit=1) as node:
            await node.schedule(on_event("a-full", handler="hold"))
            await node.schedule(on_event("b"))
            await node.schedule(on_event("b", scope_id="other"))
            for number in range(3):
                await scene.write(node, event(event_id=f"{number}"), event(event_id=f"{number}", scope_id="other"))
                await scene.settle()
            assert [run.event_id for run in await runs_of(node, "a-full")] == ["0"]
            assert [run.event_id for run in await runs_of(node, "b")] == ["0", "1", "2"]
            assert [run.event_id for run in await runs_of(node, "b", scope_id="other")] == ["0", "1", "2"]

    @clause("EVENT-4", "trigger_once beyond the limit raises LaneFull and stores nothing", uses=("scheduler",))
    async def test_a_full_job_takes_no_more_triggers(self, scene: Scene) -> None:
        async with scene.open(lane_limit=2) as node:
            await node.schedule(manual(handler="hold"))
            await node.schedule(manual("other"))
            await scene.run(node, "job")
            await node.trigger_once("job")
            with pytest.raises(LaneFull):
                await node.trigger_once("job")
            assert len(await runs_of(node)) == 2
            assert (await scene.run(node, "other")).state is RunState.SUCCEEDED

    @clause("EVENT-4", "runs that wait for their delay count against the limit", uses=("scheduler",))
    async def test_a_job_does_not_hold_any_number_of_delayed_runs(self, scene: Scene) -> None:
        async with scene.open(lane_limit=2) as node:
            await node.schedule(manual())
            for _ in range(2):
                await node.trigger_once("job", delay=timedelta(hours=1))
            for delay in (None, timedelta(hours=1)):
                with pytest.raises(LaneFull):
                    await node.trigger_once("job", delay=delay)
            assert len(await runs_of(node)) == 2

    @clause("EVENT-4", "finished runs do not count against the limit", uses=("scheduler",))
    async def test_a_job_does_not_stay_full(self, scene: Scene) -> None:
        async with scene.open(lane_limit=2) as node:
            await node.schedule(on_event())
            for _ in range(5):
                await scene.write(node, event())
                await scene.settle()
            assert scene.journal.count("job") == 5


class EventChainClauses:
    """EVENT-6: chains of causes are told, and end."""

    @clause("EVENT-6", "jobs are chained by the lifecycle events of others")
    async def test_a_job_starts_when_another_succeeded(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("first"))
            await node.schedule(manual("unrelated"))
            await node.schedule(on_event("second", "JobSucceeded", module=LIFECYCLE_MODULE, subject="first"))
            await scene.run(node, "unrelated")
            await scene.run(node, "first")
            await scene.eventually(lambda: scene.journal.count("second"), within=LATE)
            await scene.settle()
            assert [each.job_id for each in scene.journal] == ["unrelated", "first", "second"]

    @clause("EVENT-6", "a job does not fire on lifecycle events about itself")
    async def test_a_job_does_not_start_itself(self, scene: Scene) -> None:
        async with scene.open() as node:
            for kind in ("JobTriggered", "JobSucceeded", "JobRegistered"):
                await node.schedule(on_event(f"on-{kind}", kind, module=LIFECYCLE_MODULE, subject=f"on-{kind}"))
            await node.schedule(on_event("watcher", "JobSucceeded", module=LIFECYCLE_MODULE))
            for kind in ("JobTriggered", "JobSucceeded", "JobRegistered"):
                await scene.run(node, f"on-{kind}")
            await scene.eventually(lambda: scene.journal.count("watcher") == 3, within=LATE)
            await scene.settle()
            assert scene.journal.count() == 6

    @clause("EVENT-6", "a job of the same name in another scope is another job")
    async def test_a_job_is_not_mistaken_for_its_namesake(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("audit"))
            await node.schedule(on_event("audit", "JobSucceeded", module=LIFECYCLE_MODULE, scope_id=PLATFORM_SCOPE))
            await scene.run(node, "audit")
            await scene.eventually(lambda: scene.journal.count("audit", PLATFORM_SCOPE) == 1, within=LATE)

    @clause("EVENT-6", "an event written by a handler carries its run as cause, one deeper")
    async def test_an_event_does_not_forget_its_cause(self, scene: Scene) -> None:
        store = _writing(scene, "Second")
        async with scene.open(events=store) as node:
            await node.schedule(on_event("first", "First", handler="writes"))
            await node.schedule(on_event("second", "Second"))
            await scene.write(node, event("First", depth=4))
            await scene.settle()
            cause, seen = await only_run(node, "first"), scene.journal.last("second").event
            assert seen is not None
            assert (seen.caused_by, seen.depth) == (cause.run_id, 5)

    @clause("EVENT-6", "jobs that pass their event on to each other end at the depth limit")
    async def test_an_event_that_is_passed_on_does_not_keep_its_depth(self, scene: Scene) -> None:
        store = JobNotifyEventStore(scene.event_store)

        @scene.handler("passes-on")
        async def passes_on(ctx: Any, payload: bytes) -> None:
            if scene.journal.count() <= 2 * DEEPEST:  # or a scheduler that does this wrong would never end
                await store.write(evolve(ctx.event, event_type=payload.decode(), event_id=str(uuid4())))

        async with scene.open(events=store) as node:
            await node.schedule(on_event("ping", "Ping", handler="passes-on", payload=b"Pong"))
            await node.schedule(on_event("pong", "Pong", handler="passes-on", payload=b"Ping"))
            await scene.write(node, event("Ping"))
            await scene.eventually(node.dead_letters, within=LATE)
            seen = [each.event.depth for each in scene.journal if each.event]
            assert seen == list(range(DEEPEST))

    @clause("EVENT-6", "an event written outside a handler has no cause")
    async def test_an_event_of_the_application_has_no_cause(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(), event())
            await scene.settle()
            assert [(each.event.caused_by, each.event.depth) for each in scene.journal if each.event] == [(None, 0)] * 2

    @clause("EVENT-6", "at the depth limit the run is a dead letter from the start, and says why")
    async def test_an_event_at_the_depth_limit_does_not_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(depth=DEEPEST - 1, event_id="deep"))
            await scene.write(node, event(depth=DEEPEST, event_id="too deep"))
            await scene.settle()
            runs = await runs_of(node)
            assert [(run.state, len(run.attempts)) for run in runs] == [(RunState.SUCCEEDED, 1), (RunState.DEAD, 0)]
            dead = runs[1]
            assert str(DEEPEST) in (dead.reason or "")
            assert [letter.run_id for letter in await node.dead_letters()] == [dead.run_id]
            assert scene.journal.count("job") == 1

    @clause("EVENT-6", "a job that writes the event it waits for ends at the depth limit")
    async def test_a_chain_of_events_does_not_go_on_for_ever(self, scene: Scene) -> None:
        store = _writing(scene, "Ping")
        async with scene.open(events=store) as node:
            await node.schedule(on_event("job", "Ping", handler="writes"))
            await scene.write(node, event("Ping"))
            await scene.eventually(node.dead_letters, within=LATE)
            assert scene.journal.count("job") == DEEPEST
            assert len(await node.dead_letters()) == 1

    @clause("EVENT-6", "two jobs that start each other by lifecycle events end at the depth limit")
    async def test_a_chain_of_lifecycle_events_does_not_go_on_for_ever(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event("ping", "JobSucceeded", module=LIFECYCLE_MODULE, subject="pong"))
            await node.schedule(on_event("pong", "JobSucceeded", module=LIFECYCLE_MODULE, subject="ping"))
            await node.trigger_once("ping")
            await scene.eventually(node.dead_letters, within=LATE)
            assert 2 <= scene.journal.count() <= DEEPEST + 1
            assert len(await node.dead_letters()) == 1

    @clause("EVENT-6", "a replay is as deep in its chain as its letter")
    async def test_a_replay_does_not_begin_the_chain_anew(self, scene: Scene) -> None:
        store = JobNotifyEventStore(scene.event_store)

        @scene.handler("writes when replayed")
        async def writes(ctx: Any, payload: bytes) -> Failed | None:
            if ctx.cause is not Cause.REPLAY:
                return Failed("not yet", permanent=True)
            await store.write(event("Second"))
            return None

        async with scene.open(events=store) as node:
            await node.schedule(on_event("first", "First", handler="writes when replayed"))
            await node.schedule(on_event("second", "Second"))
            await scene.write(node, event("First", depth=4))
            await scene.settle()
            await node.replay((await only_run(node, "first")).run_id)
            await scene.settle()
            seen = scene.journal.last("second").event
            assert seen is not None
            assert seen.depth == 5

    @clause("EVENT-6", "a job that replays the dead letters it hears of ends at the depth limit")
    async def test_a_chain_of_replays_does_not_go_on_for_ever(self, scene: Scene) -> None:
        nodes: list[JobScheduler] = []

        @scene.handler("replays")
        async def replays(ctx: Any, payload: bytes) -> None:
            if scene.journal.count("dies") < 3 * DEEPEST:  # a chain without an end is a failure, not a hang
                await nodes[0].replay(UUID(json.loads(ctx.event.data)["run_id"]))

        async def is_cut() -> bool:
            return any(letter.job_id == "replays" for letter in await nodes[0].dead_letters())

        async with scene.open() as node:
            nodes.append(node)
            await node.schedule(manual("dies", "fail", retry=RetryPolicy.single_attempt()))
            dead = on_event("replays", "JobDeadLettered", "replays", module=LIFECYCLE_MODULE, subject="dies")
            await node.schedule(dead)
            await node.trigger_once("dies")
            await scene.eventually(is_cut, within=LATE)
            assert 2 <= scene.journal.count("dies") <= DEEPEST


def _of(event: Event | None) -> tuple[object, ...]:
    """What the writer gave."""
    fields = ("source_module", "event_type", "scope_id", "data", "subject", "event_id", "occurred_at")
    return tuple(getattr(event, name, None) for name in fields)


def _writing(scene: Scene, event_type: str) -> JobNotifyEventStore:
    """A store, and a handler `writes` that writes an event to it, the way an application does."""
    store = JobNotifyEventStore(scene.event_store)

    @scene.handler("writes")
    async def writes(ctx: Any, payload: bytes) -> None:
        await store.write(event(event_type))

    return store
