"""HIST-4 and HIST-5: events that cannot be delivered, listeners that fail, and occurrences that are accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from rota.errors import LaneFull
from rota.events import EventStore, HookedEventStore, JobNotifyEventStore
from rota.model.definition import RetryPolicy
from rota.model.event import Event
from rota.model.health import Health
from rota.model.run import DecisionKind, JobRun, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event
from rota_contracts.families._reading import runs_of, told
from rota_contracts.scene import Scene

ONE_TRY = RetryPolicy.single_attempt()


class _Picky:
    """An event store that does not take some events; with `keeps` it stores them and then says it did not."""

    def __init__(self, inner: EventStore, refuses: Callable[[Event], bool], *, keeps: bool = False) -> None:
        self._inner = inner
        self._keeps = keeps
        self.refuses = refuses
        self.tries: Counter[str] = Counter()

    async def write(self, *events: Event) -> int:
        self.tries.update(event.event_id for event in events)
        refused = any(self.refuses(event) for event in events)
        if refused and not self._keeps:
            raise OSError("the event store is away")
        position = await self._inner.write(*events)
        if refused:
            raise OSError("the event store did not answer")
        return position

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        return await self._inner.read(after, limit)


def _everything(event: Event) -> bool:
    return True


def _nothing(event: Event) -> bool:
    return False


async def _is(node: JobScheduler, status: Health) -> bool:
    return (await node.health()).status is status


class EventDeliveryClauses:
    """HIST-4: a failing event store."""

    @clause("HIST-4", "events refused by the event store are delivered when it takes them again", uses=("virtual",))
    async def test_a_failing_event_store_does_not_lose_events(self, scene: Scene) -> None:
        store = _Picky(scene.event_store, _everything)
        async with scene.open(events=store) as node:
            await node.schedule(manual(handler="flaky"))
            await node.trigger_once("job")
            await scene.advance(seconds=30)
            assert await scene.events() == []
            store.refuses = _nothing
            await scene.advance(minutes=3)
            assert [kind.removeprefix("Job") for kind in await scene.event_types("job")] == [
                "Registered", "Triggered", "Failed", "Triggered", "Succeeded",
            ]  # fmt: skip

    @clause("HIST-4", "a failing event store does not stop runs", uses=("virtual",))
    async def test_a_failing_event_store_does_not_stop_the_scheduler(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(events=_Picky(scene.event_store, _everything)) as node:
            await node.schedule(cron(handler="flaky"))
            await scene.advance(minutes=3)
            assert [run.state for run in await runs_of(node)] == [RunState.SUCCEEDED] * 4

    @clause("HIST-4", "an event told twice, because the store did not answer, has the same id", uses=("virtual",))
    async def test_a_repeated_event_does_not_get_another_id(self, scene: Scene) -> None:
        store = _Picky(scene.event_store, lambda event: store.tries[event.event_id] < 4, keeps=True)
        async with scene.open(events=store) as node:
            await node.schedule(manual())
            await node.trigger_once("job")
            await scene.advance(minutes=3)
            assert await scene.event_types("job") == ["JobRegistered", "JobTriggered", "JobSucceeded"]
            assert len(await scene.events("job", repeats=True)) > 3

    @clause("HIST-4", "events of a job wait behind one that is refused: none overtakes it", uses=("virtual",))
    async def test_events_do_not_overtake_a_refused_one(self, scene: Scene) -> None:
        store = _Picky(scene.event_store, lambda event: event.event_type == "JobTriggered")
        async with scene.open(events=store) as node:
            await node.schedule(manual())
            await node.trigger_once("job")
            await scene.advance(seconds=20)
            assert await scene.event_types("job") == ["JobRegistered"]
            store.refuses = _nothing
            await scene.advance(minutes=3)
            assert await scene.event_types("job") == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("HIST-4", "events of other jobs do not wait for a refused one", uses=("virtual",))
    async def test_a_refused_event_does_not_hold_up_other_jobs(self, scene: Scene) -> None:
        async with scene.open(events=_Picky(scene.event_store, lambda event: event.subject == "job")) as node:
            for job_id in ("job", "other"):
                await node.schedule(manual(job_id))
                await node.trigger_once(job_id)
            await scene.advance(seconds=30)
            assert await scene.event_types("other") == ["JobRegistered", "JobTriggered", "JobSucceeded"]
            assert await scene.events("job") == []

    @clause(
        "HIST-4", "an event refused twenty times is set aside, shown by health, and holds up nothing", uses=("virtual",)
    )
    async def test_a_refused_event_is_not_tried_for_ever(self, scene: Scene) -> None:
        store = _Picky(scene.event_store, lambda event: event.event_type == "JobTriggered")
        async with scene.open(events=store) as node:
            await node.schedule(manual())
            run_id = await node.trigger_once("job")
            await scene.eventually(lambda: _is(node, Health.OK))
            await scene.advance(hours=3)
            await scene.eventually(lambda: _is(node, Health.DEGRADED))
            refused = [tries for tries in store.tries.values() if tries > 5]
            assert len(refused) == 1
            assert 20 <= refused[0] <= 41  # alone and, perhaps, in a batch each time
            assert await scene.event_types("job") == ["JobRegistered", "JobSucceeded"]
            assert (await scene.event_data("job"))[-1]["run_id"] == str(run_id)

    @clause("HIST-4", "events not yet delivered survive a restart of the store", level=Level.DURABLE, uses=("virtual",))
    async def test_a_restart_does_not_lose_undelivered_events(self, scene: Scene) -> None:
        async with scene.open(events=_Picky(scene.event_store, _everything)) as node:
            await node.schedule(manual())
            await node.trigger_once("job")
            await scene.settle()
        await scene.reopen()
        async with scene.open():
            await scene.advance(minutes=1)
            assert await scene.event_types("job") == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("HIST-4", "a node without an event store takes no event from those that have one", level=Level.NODES)
    async def test_a_node_without_an_event_store_does_not_swallow_events(self, scene: Scene) -> None:
        async with scene.open(events=None) as working:
            await scene.settle()  # it has looked for something to tell before anybody wanted to be told
            async with scene.open(only=()) as listening:
                await listening.schedule(manual())
                await scene.run(working, "job")
                assert len(await told(scene, 3)) == 3
            await scene.run(working, "job")
            await scene.advance(seconds=30)  # long enough to take over from one that is gone
            async with scene.open(only=()):
                assert len(await told(scene, 5)) == 5

    @clause(
        "HIST-4",
        "events wait for a dead node no longer than its lease",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_events_do_not_wait_for_a_dead_node_longer_than_its_lease(self, scene: Scene) -> None:
        lease = timedelta(seconds=2)
        async with scene.open(lease=lease) as doomed:
            await doomed.schedule(manual())
            await scene.settle()  # this node relays from now on
            async with scene.open(lease=lease) as heir:
                await scene.settle()
                await scene.crash(doomed)
                await heir.trigger_once("job")
                await scene.advance(seconds=3)
                assert await scene.event_types("job") == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("HIST-4", "a failing listener stops neither the other listeners nor the scheduler")
    async def test_a_failing_listener_does_not_stop_anybody(self, scene: Scene) -> None:
        hooked, second, third = HookedEventStore(scene.event_store), set[str](), set[str]()

        async def fails(event: Event) -> None:
            raise RuntimeError(f"cannot bear {event.event_type}")

        hooked.subscribe(fails)
        hooked.subscribe(lambda event: second.add(event.event_type))
        hooked.subscribe(lambda event: third.add(event.event_type))
        async with scene.open(events=JobNotifyEventStore(hooked)) as node:
            await node.schedule(manual(handler="fail", retry=ONE_TRY))
            await node.schedule(manual("next"))
            await scene.run(node, "job")
            assert (await scene.run(node, "next")).state is RunState.SUCCEEDED
            both = {"JobDeadLettered", "JobSucceeded"}
            await scene.eventually(lambda: second & third >= both, within=timedelta(minutes=1))
            assert len(await node.dead_letters()) == 1


class AccountClauses:
    """HIST-5, as far as runs show it."""

    @clause(
        "HIST-5", "an event that was rejected is recorded once, however often it is told", uses=("scheduler", "virtual")
    )
    async def test_a_rejection_is_not_recorded_twice(self, scene: Scene) -> None:
        async with scene.scheduler(lane_limit=1) as node:
            await node.schedule(on_event(handler="hold"))
            await scene.write(node, *(event(event_id=f"{number}") for number in range(3)))
            await scene.advance(minutes=1)
            with pytest.raises(LaneFull):
                await node.notify(event(event_id="2"))
            decisions = await node.admin.decisions("job")
            assert {each.kind for each in decisions} == {DecisionKind.REJECTED}
            assert sum(each.count for each in decisions) == 2

    @clause("HIST-5", "over several downtimes each planned occurrence is in exactly one run", uses=("virtual",))
    async def test_no_occurrence_is_unaccounted_for_or_counted_twice(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        runs: list[JobRun] = []
        for away in (5, 0, 17, 1):
            async with scene.open() as node:
                await node.schedule(cron(payload=str(away).encode()))
                await scene.advance(minutes=2)
                runs = await runs_of(node)
            await scene.advance(minutes=away)
        covered: Counter[object] = Counter()
        for run in runs:
            assert run.due is not None
            first, last = run.covers_from or run.due, run.covers_to or run.due
            minutes = range(int((last - first) / timedelta(minutes=1)) + 1)
            assert len(minutes) == max(run.missed_count, 1)
            covered.update(first + timedelta(minutes=minute) for minute in minutes)
        assert covered == Counter(scene.at("12:00") + timedelta(minutes=n) for n in range(31))
