"""EVENT-1 and EVENT-3: which jobs an event starts, and that it starts each of them once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

from rota.model.run import Cause, Retention, RunState
from rota.model.validation import PLATFORM_SCOPE
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event
from rota_contracts.families._reading import LONG_LEASE, only_run, runs_of
from rota_contracts.scene import Scene


async def _counts(node: JobScheduler, *job_ids: str) -> list[int]:
    return [len(await runs_of(node, job_id)) for job_id in job_ids]


class EventMatchingClauses:
    """EVENT-1: exact matches, in the job's own scope."""

    @clause("EVENT-1", "an event makes one run of each job that waits for it, and of no other")
    async def test_an_event_makes_one_run_of_each_matching_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            for definition in (on_event("one"), on_event("two"), manual("by-hand"), cron("yearly", "0 0 1 1 *")):
                await node.schedule(definition)
            await scene.write(node, event())
            await scene.settle()
            assert await _counts(node, "one", "two", "by-hand", "yearly") == [1, 1, 0, 0]
            assert scene.journal.count() == 2

    @clause("EVENT-1", "the run says that an event caused it, and which")
    async def test_the_run_names_its_event(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(event_id="order-17"))
            await scene.settle()
            run = await only_run(node)
            assert (run.cause, run.event_id, run.due) == (Cause.EVENT, "order-17", None)
            assert run.state is RunState.SUCCEEDED

    @clause("EVENT-1", "module and type match exactly: no prefix, no other case, no pattern")
    async def test_names_that_are_alike_do_not_match(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.schedule(on_event("pattern", "*", module="%"))
            for module, kind in (
                ("shop", "OrderPlacedLate"), ("shop", "Order"), ("shop", "orderplaced"), ("shop", "OrderPlaced "),
                ("shops", "OrderPlaced"), ("sho", "OrderPlaced"), ("SHOP", "OrderPlaced"), ("OrderPlaced", "shop"),
            ):  # fmt: skip
                await scene.write(node, event(kind, module=module))
            await scene.settle()
            assert await _counts(node, "job", "pattern") == [0, 0]

    @clause("EVENT-1", "module and type are two names: where the one ends matters")
    async def test_module_and_type_do_not_run_together(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event("job", "c", module="a.b"))
            for module, kind in (("a", "b.c"), ("a.b.c", "c"), ("a.b", "b.c")):
                await scene.write(node, event(kind, module=module))
            await scene.settle()
            assert await _counts(node, "job") == [0]

    @clause("EVENT-1", "with a subject, only events with exactly that subject match")
    async def test_another_subject_does_not_match(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(subject="order-1"))
            for subject in (None, "order-11", "order-", "ORDER-1", "order-2"):
                await scene.write(node, event(subject=subject))
            await scene.settle()
            assert await _counts(node, "job") == [0]
            await scene.write(node, event(subject="order-1"))
            await scene.settle()
            assert await _counts(node, "job") == [1]

    @clause("EVENT-1", "without a subject, events with any subject and with none match")
    async def test_a_job_without_a_subject_is_not_choosy(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(subject="order-1"), event(subject="order-2"), event())
            await scene.settle()
            assert await _counts(node, "job") == [3]

    @clause("EVENT-1", "an event of another scope starts nothing")
    async def test_an_event_of_another_scope_does_not_match(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(scope_id="other"), event(scope_id="default2"), event(scope_id="*"))
            await scene.write(node, event(scope_id=PLATFORM_SCOPE))
            await scene.settle()
            assert await _counts(node, "job") == [0]

    @clause("EVENT-1", "a job in the platform's scope matches events of every scope, and runs in its own")
    async def test_a_platform_job_does_not_leave_scopes_out(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(scope_id=PLATFORM_SCOPE))
            await scene.write(node, event(), event(scope_id="other"), event(scope_id=PLATFORM_SCOPE))
            await scene.settle()
            assert scene.journal.count("job", PLATFORM_SCOPE) == 3
            assert len(await runs_of(node, scope_id=PLATFORM_SCOPE)) == 3
            assert await runs_of(node) == await runs_of(node, scope_id="other") == []

    @clause("EVENT-1", "a job in the platform's scope hears of equal ids in two scopes as of two events, each once")
    async def test_a_platform_job_does_not_take_two_scopes_for_one(self, scene: Scene) -> None:
        same = [event(event_id="order-17", scope_id=scope_id) for scope_id in ("default", "other", PLATFORM_SCOPE)]
        async with scene.open() as node:
            await node.schedule(on_event(scope_id=PLATFORM_SCOPE))
            first = [await node.notify(each) for each in same]
            await scene.settle()
            again = [await node.notify(each) for each in same]
            await scene.settle()
            assert first == again == [[run.run_id] for run in await runs_of(node, scope_id=PLATFORM_SCOPE)]
            seen = [each.event.scope_id for each in scene.journal if each.event]
            assert seen == ["default", "other", PLATFORM_SCOPE]

    @clause("EVENT-1", "after schedule returned, an event written on another node is handled", level=Level.NODES)
    async def test_an_event_on_another_node_is_not_missed(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as two:
            for number in range(3):
                await one.schedule(on_event(f"job-{number}"))
                await scene.write(two, event())
                await scene.settle()
            assert await _counts(two, "job-0", "job-1", "job-2") == [3, 2, 1]

    @clause("EVENT-1", "a job that was removed is started by no event")
    async def test_a_removed_job_does_not_match(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.unschedule("job")
            await scene.write(node, event())
            await scene.settle()
            assert scene.journal.count() == 0

    @clause("EVENT-1", "a job with a new trigger waits for the new event only")
    async def test_a_replaced_trigger_does_not_match_any_more(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.schedule(on_event("job", "OrderShipped"))
            await scene.write(node, event(), event("OrderShipped", event_id="shipped"))
            await scene.settle()
            assert [run.event_id for run in await runs_of(node)] == ["shipped"]


class EventOnceClauses:
    """EVENT-3: one run per job and event."""

    @clause("EVENT-3", "the same event told twice makes one run, and both tellings name it")
    async def test_an_event_told_twice_does_not_run_twice(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event("one"))
            await node.schedule(on_event("two"))
            first = await node.notify(event(event_id="order-17"))
            await scene.settle()
            again = await node.notify(event(event_id="order-17"))
            await scene.settle()
            assert set(first) == set(again) == {(await only_run(node, job)).run_id for job in ("one", "two")}
            assert scene.journal.count() == 2

    @clause("EVENT-3", "the same event twice in one call makes one run")
    async def test_an_event_twice_in_one_call_does_not_run_twice(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            same = event(event_id="order-17")
            await scene.write(node, same, same)
            await scene.settle()
            await only_run(node)
            assert scene.journal.count("job") == 1

    @clause("EVENT-3", "events that differ only in their id are two occurrences")
    async def test_equal_events_with_two_ids_are_not_one(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(event_id="order-17", data=b"x"), event(event_id="order-18", data=b"x"))
            await scene.settle()
            assert [run.event_id for run in await runs_of(node)] == ["order-17", "order-18"]

    @clause("EVENT-3", "the same event id in two scopes is an occurrence in each")
    async def test_an_event_id_does_not_reach_into_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.schedule(on_event(scope_id="other"))
            await scene.write(node, event(event_id="order-17"), event(event_id="order-17", scope_id="other"))
            await scene.settle()
            assert (await only_run(node)).run_id != (await only_run(node, scope_id="other")).run_id

    @clause("EVENT-3", "an event told by eight nodes at once makes one run", level=Level.NODES)
    async def test_eight_nodes_do_not_run_an_event_twice(self, scene: Scene) -> None:
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(scene.open()) for _ in range(8)]
            await nodes[0].schedule(on_event())
            answers = await asyncio.gather(*(node.notify(event(event_id="order-17")) for node in nodes))
            await scene.settle()
            run = await only_run(nodes[0])
            assert answers == [[run.run_id]] * 8
            assert scene.journal.count("job") == 1

    @clause("EVENT-3", "an event whose run failed for good is not tried again when it is told again")
    async def test_a_dead_lettered_event_does_not_run_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="script", payload=b"permanent:no"))
            await node.notify(event(event_id="order-17"))
            await scene.settle()
            await node.notify(event(event_id="order-17"))
            await scene.settle()
            assert (await only_run(node)).state is RunState.DEAD
            assert scene.journal.count("job") == 1

    @clause("EVENT-3", "an event is remembered when retention has forgotten its run")
    async def test_retention_does_not_let_an_event_run_again(self, scene: Scene) -> None:
        async with scene.open(retention=Retention(runs=1)) as node:
            await node.schedule(on_event())
            first = await node.notify(event(event_id="order-17"))
            assert len(first) == 1
            await scene.settle()
            for _ in range(4):
                await node.notify(event())
                await scene.settle()
            assert await node.notify(event(event_id="order-17")) == first
            await scene.settle()
            assert scene.journal.count("job") == 5

    @clause("EVENT-3", "an event is remembered for a week", uses=("virtual",))
    async def test_an_event_is_not_forgotten_within_a_week(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(age=timedelta(hours=1))) as node:
            await node.schedule(on_event())
            first = await node.notify(event(event_id="order-17"))
            assert len(first) == 1
            await scene.advance(days=6, hours=23)
            assert await node.notify(event(event_id="order-17")) == first
            await scene.advance(seconds=5)
            assert scene.journal.count("job") == 1

    @clause("EVENT-3", "an event that starts nothing is answered with no run")
    async def test_an_event_nobody_waits_for_makes_no_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            assert await node.notify(event("OrderLost"), event(scope_id="other")) == []
            await scene.settle()
            assert scene.journal.count() == 0

    @clause("EVENT-3", "an event that was written and notified is not run again by the sweep", uses=("virtual",))
    async def test_the_sweep_does_not_run_an_event_twice(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event())
            await scene.advance(minutes=5)
            async with scene.open():
                await scene.advance(minutes=5)
            await only_run(node)
            assert scene.journal.count("job") == 1
