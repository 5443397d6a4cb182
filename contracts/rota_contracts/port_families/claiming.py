"""Which run a claim hands over: in which order, to whom, and after the clock was set back."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from rota.backend import ClaimRequest, Firing, NodeInfo
from rota_contracts.clause import clause
from rota_contracts.port import LEASE, Port

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_VIRTUAL = ("virtual", "step")


class ClaimOrderClauses:
    """RUN-2: lanes are claimed in the order in which they became ready."""

    @clause("RUN-2", "lanes are claimed in the order in which they became ready, whenever a node looks", uses=_VIRTUAL)
    async def test_lanes_are_claimed_in_the_order_in_which_they_became_ready(self, port: Port) -> None:
        last, first, second = [await port.register(name) for name in ("last", "first", "second")]
        await port.trigger(last, delay=20 * _SECOND)
        await port.trigger(first, delay=10 * _SECOND)
        await port.step(seconds=15)
        await port.trigger(second)
        await port.step(minutes=1)
        claimed = [each.key for _ in range(3) for each in await port.claim(limit=1)]
        assert claimed == [first, second, last]

    @clause("RUN-2", "a lane keeps its place in that order when another run of it becomes the next one", uses=_VIRTUAL)
    async def test_a_lane_whose_next_run_changes_keeps_its_place(self, port: Port) -> None:
        first, second = [await port.register(name) for name in ("first", "second")]
        await port.trigger(first, delay=10 * _SECOND)
        await port.trigger(first)
        await port.step(seconds=1)
        await port.trigger(second)
        await port.step(minutes=1)
        assert [each.key for each in await port.claim(limit=1)] == [first]

    @clause("RUN-2", "a lane is ready since the earliest start of its delayed run, not a later trigger", uses=_VIRTUAL)
    async def test_a_lane_is_ready_since_its_delayed_run_may_start(self, port: Port) -> None:
        second, first = [await port.register(name) for name in ("second", "first")]
        await port.trigger(first, delay=10 * _SECOND)
        await port.step(seconds=20)
        await port.trigger(second)
        await port.step(seconds=1)
        await port.trigger(first)
        assert [each.key for each in await port.claim(limit=1)] == [first]


class ClaimByHandlerClauses:
    """RUN-2: runs that wait for another node's handler."""

    @clause("RUN-2", "a run that waits for the handler of another node takes no slot of its queue", uses=_VIRTUAL)
    async def test_a_run_for_another_node_takes_no_slot_of_its_queue(self, port: Port) -> None:
        await port.backend.renew(NodeInfo("other", frozenset({"old"}), lease=_HOUR), [])
        mixed = await port.register("mixed", "old")
        await port.trigger(mixed, delay=_SECOND)
        await port.register("mixed", "work")
        await port.trigger(mixed, delay=2 * _SECOND)
        waiting = await port.trigger(await port.register("plain"), delay=3 * _SECOND)
        await port.step(seconds=4)
        assert [each.run_id for each in await port.claim(queues={"default": 1})] == [waiting]

    @clause("RUN-2", "a delayed run is offered to the node that has its handler once its start has come", uses=_VIRTUAL)
    async def test_a_delayed_run_is_offered_to_the_node_that_has_its_handler(self, port: Port) -> None:
        for node, handler in (("old", "work"), ("new", "other work")):
            await port.backend.renew(NodeInfo(node, frozenset({handler}), lease=_HOUR), [])
        key = await port.register()
        first = await port.trigger(key, delay=10 * _SECOND)
        await port.register(handler="other work")
        await port.trigger(key)
        looked = await port.backend.claim(ClaimRequest("old", frozenset({"work"}), 9, LEASE))
        assert looked.claims == [], "the delayed run cannot start yet, and the other one is for the node `new`"
        assert looked.next_at is not None, "a claim says when to look again: at the start of the delayed run"
        await port.step(seconds=(looked.next_at - port.now()).total_seconds())
        assert [each.run_id for each in await port.claim("old")] == [first]


class ClockSetBackClauses:
    """CRON-9: a clock that is set back holds up no run for ever."""

    @clause("CRON-9", "a delay that had passed before the clock was set back does not block its lane", uses=_VIRTUAL)
    async def test_a_delay_that_had_passed_before_the_clock_was_set_back_blocks_no_lane(self, port: Port) -> None:
        key = await port.register()
        run_id = await port.trigger(key, delay=10 * _SECOND)
        await port.pause(key, "for a while")
        await port.step(minutes=1)
        assert await port.claim() == [], "the job is paused"
        await port.step(hours=-1)
        await port.pause(key, None)
        await port.step(hours=1)
        assert [each.run_id for each in await port.claim()] == [run_id]

    @clause("CRON-9", "a delayed run that a tick met starts also after the clock was set back", uses=_VIRTUAL)
    async def test_a_delayed_run_that_a_tick_met_starts_after_the_clock_was_set_back(self, port: Port) -> None:
        due = port.now()
        key = await port.register(next_due=due)
        run_id = await port.trigger(key, delay=10 * _SECOND)
        await port.step(minutes=1)
        await port.backend.fire([Firing(key, await port.revision(key), due, due, due + _HOUR, uuid4(), due)])
        await port.step(hours=-1)
        await port.claim(limit=0)
        await port.step(hours=1)
        assert [each.run_id for each in await port.claim()] == [run_id]


class DueOrderClauses:
    """CRON-5: the earliest due instant comes first."""

    @clause(
        "CRON-5",
        "jobs are due in order of their instants, also when the first was registered last",
        uses=_VIRTUAL,
    )
    async def test_jobs_are_due_in_the_order_of_their_instants(self, port: Port) -> None:
        async def due(limit: int) -> list[str]:
            return [job.key.job_id for job in (await port.backend.due(limit)).jobs]

        await port.register("later", next_due=port.now() - _SECOND)
        assert await due(10) == ["later"]
        await port.register("earlier", next_due=port.now() - 5 * _SECOND)
        assert await due(10) == ["earlier", "later"]
        assert await due(1) == ["earlier"]
