"""HIST-3: the five lifecycle events of a job, their order and their data."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.model.definition import RetryPolicy
from rota.model.event import Event
from rota.model.run import JobRun, RunState
from rota.model.validation import LIFECYCLE_MODULE
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.families._reading import only_run, told
from rota_contracts.scene import Scene

ONE_TRY = RetryPolicy.single_attempt()
FIELDS = {
    "job_id", "scope_id", "run_id", "attempt", "handler_name", "cause", "schedule", "due", "started_at", "duration_ms",
    "error", "next_attempt_at", "records_processed",
}  # fmt: skip


async def _tells(scene: Scene, *expected: tuple[str, int], job_id: str = "job") -> None:
    """The job is told as registered, then exactly as expected: type and attempt of each event."""
    events = await told(scene, len(expected) + 1, job_id)
    found = [(event.event_type.removeprefix("Job"), json.loads(event.data)["attempt"]) for event in events]
    assert [kind for kind, _ in found[:1]] == ["Registered"]
    assert found[1:] == list(expected)


async def _data(scene: Scene, event_type: str, number: int) -> dict[str, Any]:
    """The data of the job's only event of a type, when it has `number` events."""
    found = [event for event in await told(scene, number) if event.event_type == event_type]
    assert len(found) == 1, f"{len(found)} events {event_type} instead of one"
    data: dict[str, Any] = json.loads(found[0].data)
    return data


class LifecycleEventClauses:
    """HIST-3: which events, in which order."""

    @clause("HIST-3", "a run that succeeds is told as Triggered, Succeeded")
    async def test_a_success_is_told_in_order(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await scene.run(node, "job")
            await _tells(scene, ("Triggered", 1), ("Succeeded", 1))

    @clause("HIST-3", "each failed attempt is told as Failed, each new one as Triggered", uses=("virtual",))
    async def test_retries_are_told_one_by_one(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"2"))
            await scene.run(node, "job")
            await scene.advance(minutes=1)
            twice = (("Triggered", 1), ("Failed", 1), ("Triggered", 2), ("Failed", 2))
            await _tells(scene, *twice, ("Triggered", 3), ("Succeeded", 3))

    @clause("HIST-3", "a run that dies is told as Failed and then DeadLettered", uses=("virtual",))
    async def test_a_dead_letter_is_not_told_without_its_failure(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=RetryPolicy.fixed(seconds=5, attempts=2)))
            await node.schedule(manual("at-once", handler="script", payload=script("permanent:no")))
            await scene.run(node, "job")
            await scene.run(node, "at-once")
            await scene.advance(minutes=1)
            twice = (("Triggered", 1), ("Failed", 1), ("Triggered", 2), ("Failed", 2))
            await _tells(scene, *twice, ("DeadLettered", 2))
            await _tells(scene, ("Triggered", 1), ("Failed", 1), ("DeadLettered", 1), job_id="at-once")

    @clause("HIST-3", "of a cancelled run nothing more is told", uses=("virtual",))
    async def test_a_cancelled_run_is_not_told_of_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            for definition in (manual(handler="hold"), manual("retrying", handler="fail")):
                await node.schedule(definition)
            running, retrying = await node.trigger_once("job"), await node.trigger_once("retrying")
            queued = await node.trigger_once("job")
            await scene.settle()
            for run_id in (queued, running, retrying):
                await node.cancel(run_id)
            await scene.advance(minutes=2)
            assert (await scene.look(node, running)).state is RunState.CANCELLED
            await _tells(scene, ("Triggered", 1))
            await _tells(scene, ("Triggered", 1), ("Failed", 1), job_id="retrying")

    @clause("HIST-3", "runs that never were are not told of: skipped ticks, removed jobs", uses=("virtual",))
    async def test_nothing_is_told_of_what_did_not_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold"))
            await scene.advance(minutes=3)
            await node.trigger_once("job")
            await node.unschedule("job")
            await scene.release()
            await scene.advance(minutes=2)
            await _tells(scene, ("Triggered", 1), ("Succeeded", 1))

    @clause("HIST-3", "runs of one job are told one after the other", uses=("virtual",))
    async def test_events_of_two_runs_are_not_mixed(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            runs = [str(await node.trigger_once("job")) for _ in range(3)]
            await scene.advance(minutes=2)
            about = [json.loads(event.data)["run_id"] for event in await told(scene, 13)][1:]
            assert about == [run for run in runs for _ in range(4)]

    @clause(
        "HIST-3", "an attempt lost with its node is told as Failed, lease expired", level=Level.NODES, uses=("virtual",)
    )
    async def test_a_lost_attempt_is_not_passed_over(self, scene: Scene) -> None:
        async with scene.open(lease=timedelta(seconds=30)) as dies:
            await dies.schedule(manual(handler="hold"))
            await scene.run(dies, "job")
            await scene.crash(dies)
        async with scene.open():
            await scene.advance(minutes=1)
            await scene.release()
            await scene.advance(seconds=30)
            await _tells(scene, ("Triggered", 1), ("Failed", 1), ("Triggered", 2), ("Succeeded", 2))
            assert "lease expired" in (await _data(scene, "JobFailed", 5))["error"]

    @clause(
        "HIST-3",
        "a last attempt lost with its node is told as Failed and DeadLettered",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_a_lost_last_attempt_is_told_as_a_dead_letter(self, scene: Scene) -> None:
        async with scene.open(lease=timedelta(seconds=30)) as dies:
            await dies.schedule(manual(handler="hold", retry=ONE_TRY))
            await scene.run(dies, "job")
            await scene.crash(dies)
        async with scene.open():
            await scene.advance(minutes=2)
            await _tells(scene, ("Triggered", 1), ("Failed", 1), ("DeadLettered", 1))

    @clause("HIST-3", "a run handed back and started again is told under the same id", uses=("virtual", "scheduler"))
    async def test_a_hand_back_is_not_told(self, scene: Scene) -> None:
        async with scene.open(drain_timeout=timedelta(0)) as leaves:
            await leaves.schedule(manual(handler="hold"))
            await scene.run(leaves, "job")
        async with scene.open():
            await scene.advance(seconds=15)
            await scene.release()
            await scene.advance(seconds=15)
            assert scene.journal.count("job") == 2
            await _tells(scene, ("Triggered", 1), ("Succeeded", 1))

    @clause("HIST-3", "a job is told as registered before anything else of it", uses=("virtual",))
    async def test_nothing_is_told_before_the_registration(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await node.schedule(cron(payload=b"new"))
            await scene.advance(seconds=10)
            types = [event.event_type for event in await told(scene, 4)]
            assert types[0] == "JobRegistered"
            assert sorted(types) == ["JobRegistered", "JobRegistered", "JobSucceeded", "JobTriggered"]


class LifecycleDataClauses:
    """HIST-3: what the events say."""

    @clause("HIST-3", "events carry the job as subject and its scope, and every field of the data")
    async def test_no_field_is_left_out(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=ONE_TRY, scope_id="other"))
            await scene.run(node, "job", scope_id="other")
            events = await told(scene, 4, scope_id="other")
            assert len(events) == 4
            for event in events:
                assert (event.source_module, event.subject, event.scope_id) == (LIFECYCLE_MODULE, "job", "other")
                assert set(json.loads(event.data)) >= FIELDS, event.event_type
            assert await scene.events() == []

    @clause(
        "HIST-3",
        "the data of a cron run says what ran, when it was due and how long it took",
        uses=("virtual", "sleep"),
    )
    async def test_the_data_of_a_success_is_that_of_the_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        scene.slow_for = timedelta(seconds=4)
        async with scene.open() as node:
            await node.schedule(cron("job", "0 12 * * *", tz="Etc/UTC", handler="slow"))
            await scene.advance(seconds=25)
            run, data = await only_run(node), await _data(scene, "JobSucceeded", 3)
            assert (data["job_id"], data["scope_id"], data["run_id"]) == ("job", "default", str(run.run_id))
            assert (data["handler_name"], data["cause"].lower(), data["attempt"]) == ("slow", "cron", 1)
            assert "0 12 * * *" in data["schedule"]
            assert datetime.fromisoformat(data["due"]) == run.due
            assert datetime.fromisoformat(data["started_at"]) == run.started_at
            assert data["duration_ms"] == 4000
            assert (data["error"], data["next_attempt_at"]) == (None, None)

    @clause("HIST-3", "the data of a failure has the error and the next attempt", uses=("virtual",))
    async def test_the_data_of_a_failure_says_when_it_goes_on(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("fail:out of paper", "ok:12")))
            run = await scene.run(node, "job")
            await scene.advance(seconds=30)
            data = await _data(scene, "JobFailed", 5)
            assert "out of paper" in data["error"]
            ended = (await scene.look(node, run.run_id)).attempts[0].ended_at
            assert ended is not None
            assert datetime.fromisoformat(data["next_attempt_at"]) == ended + timedelta(seconds=10)

    @clause("HIST-3", "the data of a success has the number of records")
    async def test_the_number_of_records_is_told(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("ok:12")))
            run = await scene.run(node, "job")
            assert (await _data(scene, "JobSucceeded", 3))["records_processed"] == run.records_processed == 12

    @clause("HIST-3", "no two facts share an id", uses=("virtual",))
    async def test_events_of_different_facts_do_not_share_an_id(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope_id in ("default", "other"):
                await node.schedule(manual(handler="fail", scope_id=scope_id))
                await node.schedule(manual(handler="flaky", scope_id=scope_id))
                await node.trigger_once("job", scope_id=scope_id)
                await node.trigger_once("job", scope_id=scope_id)
            await scene.advance(minutes=2)
            by_id = {event.event_id: event for event in await scene.events(scope_id=None)}
            facts = {(e.event_type, e.scope_id, e.data) for e in by_id.values()}
            assert len(by_id) == len(facts) == 2 * (2 + 2 * 4)

    @clause("HIST-3", "a transition is stored before its event is written", uses=("virtual",))
    async def test_an_event_does_not_run_ahead_of_the_store(self, scene: Scene) -> None:
        reader = _Reader(scene)
        async with scene.open(events=reader) as node:
            reader.node = node
            await node.schedule(manual(handler="fail", retry=RetryPolicy.fixed(seconds=5, attempts=2)))
            await node.schedule(manual("fine", handler="hold"))
            for job_id in ("job", "fine", "fine"):
                await node.trigger_once(job_id)
            await scene.settle()
            await scene.release()
            await scene.advance(minutes=1)
            assert reader.early == []
            assert reader.looked_at > 8


class _Reader:
    """An event store that reads each run as its event arrives."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.node: JobScheduler | None = None
        self.early: list[str] = []
        self.looked_at = 0

    async def write(self, *events: Event) -> int:
        for event in events:
            data = json.loads(event.data)
            if self.node is not None and data["run_id"] is not None:
                run = await self.node.get_run(UUID(data["run_id"]))
                self.looked_at += 1
                if run is None or not _is_as_new(run, event.event_type, data["attempt"]):
                    self.early.append(f"{event.event_type} {data['attempt']} told of {run}")
        return await self._scene.event_store.write(*events)

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        return await self._scene.event_store.read(after, limit)


def _is_as_new(run: JobRun, event_type: str, attempt: int) -> bool:
    """Whether the run is at least where its event says."""
    if event_type == "JobTriggered":
        return run.attempt >= attempt and run.state is not RunState.QUEUED
    if event_type == "JobFailed":
        return any(each.number == attempt and each.ended_at is not None for each in run.attempts)
    return run.state is (RunState.SUCCEEDED if event_type == "JobSucceeded" else RunState.DEAD)
