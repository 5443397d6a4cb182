"""EVENT-2 and EVENT-5: the event store that notifies, and what is delivered when notifying failed."""

from __future__ import annotations

from rota.errors import RotaError
from rota.events import InMemoryEventStore, JobNotifyEventStore
from rota.model.event import Event
from rota_contracts.clause import Level, clause
from rota_contracts.declare import event, on_event
from rota_contracts.families._reading import only_run, runs_of
from rota_contracts.scene import Scene


class _Full:
    """An event store that takes nothing."""

    async def write(self, *events: Event) -> int:
        raise OSError("no space left")

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        return []


class _Lasting(InMemoryEventStore):
    """One of several event stores that outlive the nodes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.positions = None


class EventWritingClauses:
    """EVENT-2: stored, then notified, and never on the writer's stack."""

    @clause("EVENT-2", "when write returns, the event and its runs are stored")
    async def test_a_written_event_does_not_wait_for_its_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.write(node, event(event_id="order-17"))
            assert (await only_run(node)).event_id == "order-17"
            assert "order-17" in [stored.event_id for _, stored in await scene.event_store.read(0, 1000)]

    @clause("EVENT-2", "write does not wait for handlers")
    async def test_a_handler_that_waits_does_not_hold_up_the_writer(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="hold"))
            await scene.write(node, event())
            assert not (await only_run(node)).state.is_final
            await scene.settle()
            await scene.write(node, event())
            assert len(await runs_of(node)) == 2

    @clause("EVENT-2", "a handler that fails does not fail the write")
    async def test_a_failing_handler_does_not_reach_the_writer(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="fail"))
            await scene.write(node, event())
            await scene.settle()
            assert scene.journal.count("job") == 1

    @clause("EVENT-2", "a write that fails starts nothing, and fails")
    async def test_an_event_that_was_not_stored_starts_nothing(self, scene: Scene) -> None:
        store = JobNotifyEventStore(_Full())
        async with scene.open(events=store) as node:
            await node.schedule(on_event())
            try:
                await store.write(event())
            except OSError:
                pass
            else:
                raise AssertionError("the write of an event that was not stored succeeded")
            await scene.settle()
            assert await runs_of(node) == []

    @clause("EVENT-2", "when notifying fails the write succeeds and on_error is told", uses=("outage",))
    async def test_a_write_does_not_fail_with_the_notification(self, scene: Scene) -> None:
        told: list[tuple[str, Exception]] = []
        store = JobNotifyEventStore(scene.event_store, lambda event, error: told.append((event.event_id, error)))
        async with scene.open(events=store) as node:
            await node.schedule(on_event())
            await scene.settle()
            with scene.outage():
                await store.write(event(event_id="order-17"))
            assert [event_id for event_id, _ in told] == ["order-17"]
            assert isinstance(told[0][1], RotaError)
            assert "order-17" in [stored.event_id for _, stored in await scene.event_store.read(0, 1000)]

    @clause("EVENT-2", "an event whose notification failed is delivered later, once", uses=("outage", "virtual"))
    async def test_an_event_is_not_lost_with_its_notification(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.settle()
            with scene.outage():
                await scene.write(node, event(event_id="order-17"))
            await scene.advance(minutes=2)
            assert (await only_run(node)).event_id == "order-17"
            assert scene.journal.count("job") == 1

    @clause("EVENT-2", "on_error is not called when all went well")
    async def test_on_error_is_not_called_without_an_error(self, scene: Scene) -> None:
        told: list[Event] = []
        store = JobNotifyEventStore(scene.event_store, lambda event, error: told.append(event))
        async with scene.open(events=store) as node:
            await node.schedule(on_event())
            await store.write(event(), event("OrderLost"))
            await scene.settle()
            assert told == []


class EventSweepClauses:
    """EVENT-5: nothing that was written is lost, and nothing from before is dug up."""

    @clause("EVENT-5", "a handler that fails keeps the event from no other job")
    async def test_one_failing_job_does_not_stop_the_others(self, scene: Scene) -> None:
        async with scene.open() as node:
            for definition in (on_event("a-fails", handler="fail"), on_event("b"), on_event("c")):
                await node.schedule(definition)
            await scene.write(node, event())
            await scene.settle()
            assert scene.journal.count("b") == scene.journal.count("c") == 1

    @clause("EVENT-5", "events that no scheduler was notified of are found and delivered, in order", uses=("virtual",))
    async def test_an_event_without_a_notification_is_not_lost(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.settle()
            await scene.event_store.write(event(event_id="1"), event(event_id="2"))
            await scene.event_store.write(event(event_id="3"))
            await scene.advance(minutes=2)
            assert [run.event_id for run in await runs_of(node)] == ["1", "2", "3"]

    @clause("EVENT-5", "events written while no node was there are delivered by the next", uses=("virtual",))
    async def test_an_event_written_while_nobody_listened_is_not_lost(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.settle()
        await scene.event_store.write(event(event_id="order-17"))
        async with scene.open() as node:
            await scene.advance(minutes=2)
            assert (await only_run(node)).event_id == "order-17"

    @clause("EVENT-5", "a node that dies between write and notify loses no event", level=Level.NODES, uses=("virtual",))
    async def test_a_crash_before_the_notification_does_not_lose_the_event(self, scene: Scene) -> None:
        async with scene.open() as dies, scene.open() as node:
            await node.schedule(on_event())
            await scene.settle()
            await scene.event_store.write(event(event_id="order-17"))
            await scene.crash(dies)
            await scene.advance(minutes=2)
            assert (await only_run(node)).event_id == "order-17"

    @clause("EVENT-5", "the position is not moved past an event that was not delivered", uses=("outage", "virtual"))
    async def test_a_later_event_does_not_bury_an_undelivered_one(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.settle()
            with scene.outage():
                await scene.write(node, event(event_id="lost"))
            await scene.write(node, event(event_id="fine"))
            await scene.advance(minutes=2)
            assert sorted(run.event_id or "" for run in await runs_of(node)) == ["fine", "lost"]

    @clause("EVENT-5", "an event written before the job was registered makes no run", uses=("virtual",))
    async def test_an_event_from_before_the_registration_makes_no_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await scene.write(node, event(event_id="before"))
            await node.schedule(on_event())
            await scene.write(node, event(event_id="after"))
            await scene.advance(minutes=2)
            assert [run.event_id for run in await runs_of(node)] == ["after"]

    @clause("EVENT-5", "events of an older store are not dug up by a new job", uses=("virtual",))
    async def test_the_past_of_an_event_store_makes_no_runs(self, scene: Scene) -> None:
        await scene.event_store.write(*(event() for _ in range(5)))
        async with scene.open() as node:
            await node.schedule(on_event())
            await scene.advance(minutes=2)
            assert await runs_of(node) == []

    @clause(
        "EVENT-5", "an event written and not notified before the job was registered makes no run", uses=("virtual",)
    )
    async def test_the_sweep_does_not_deliver_what_was_before_the_registration(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event("older"))
            await scene.settle()
            await scene.event_store.write(event())
            await node.schedule(on_event("newer"))
            await scene.advance(minutes=2)
            assert len(await runs_of(node, "older")) == 1
            assert await runs_of(node, "newer") == []

    @clause(
        "EVENT-5",
        "a sweep that read an event before the job was registered, and delivers it after, makes no run of the job",
        level=Level.NODES,
        uses=("virtual", "hold"),
    )
    async def test_a_slow_sweep_does_not_deliver_to_a_job_that_came_after_the_event(self, scene: Scene) -> None:
        async with scene.open() as slow:
            await slow.schedule(on_event("older"))
            await scene.settle()
            with scene.hold(slow, "notify") as held:
                await scene.event_store.write(event(event_id="before"))
                await scene.eventually(lambda: held.waiting)
                async with scene.open(concurrency=0) as node:
                    await node.schedule(on_event("newer"))
            await scene.advance(minutes=1)
            await scene.event_store.write(event(event_id="after"))
            await scene.advance(minutes=1)
            assert [run.event_id for run in await runs_of(slow, "older")] == ["before", "after"]
            assert [run.event_id for run in await runs_of(slow, "newer")] == ["after"]

    @clause(
        "EVENT-5",
        "two event stores with names have a position each",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_an_event_store_does_not_move_the_position_of_another(self, scene: Scene) -> None:
        long, short = _Lasting("long"), _Lasting("short")
        async with scene.open(events=long) as one, scene.open(events=short):
            await one.schedule(on_event())
            await long.write(*(event("Noise") for _ in range(20)), event(event_id="long"))
            await scene.advance(minutes=1)
            await short.write(event(event_id="short"))
            await scene.advance(minutes=1)
            assert [run.event_id for run in await runs_of(one)] == ["long", "short"]
        async with scene.open(events=long) as one, scene.open(events=short) as two:
            await two.schedule(on_event("newer"))
            await scene.advance(minutes=1)
            assert await runs_of(one, "newer") == []

    @clause("EVENT-5", "an event store in memory begins anew, and digs up nothing of another", uses=("virtual",))
    async def test_a_new_event_store_in_memory_does_not_begin_where_another_was(self, scene: Scene) -> None:
        first, second = InMemoryEventStore(), InMemoryEventStore()
        async with scene.open(events=first) as node:
            await first.write(event(), *(event("Noise") for _ in range(20)))
            await scene.advance(minutes=1)
            await node.schedule(on_event())
            async with scene.open(events=second):
                await scene.advance(minutes=1)
                await second.write(event(event_id="new"))
                await scene.advance(minutes=1)
            await scene.advance(minutes=1)
            assert (await only_run(node)).event_id == "new"
