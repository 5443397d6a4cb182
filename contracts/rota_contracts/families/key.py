"""KEY-1 to KEY-3: a registration with a key happens once within its window."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.errors import UnsupportedPrecision
from rota.model.capability import Capability, Precision
from rota.model.definition import ScheduleOutcome
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual
from rota_contracts.families._look import at_once, cluster, stored
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene

DUPLICATE, REGISTERED = ScheduleOutcome.DUPLICATE, ScheduleOutcome.REGISTERED
REPLACED, UNCHANGED = ScheduleOutcome.REPLACED, ScheduleOutcome.UNCHANGED


def keyed(payload: bytes = b"", name: str = "key", ttl: timedelta = timedelta(days=1), **more: Any) -> Any:
    """A job with a registration key."""
    return manual(payload=payload, idempotency_key=key(name, ttl), **more)


class RegistrationKeyClauses:
    """KEY-1."""

    @clause(
        "KEY-1", "a registration whose key was accepted within its TTL is a DUPLICATE: nothing stored, nothing emitted"
    )
    async def test_a_repeated_registration_stores_and_emits_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            assert await node.schedule(keyed(b"first")) is REGISTERED
            assert await node.schedule(keyed(b"second")) is DUPLICATE
            assert (await stored(node)).payload == b"first"
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("KEY-1", "a duplicate moves neither the schedule nor the queue", uses=("virtual",))
    async def test_a_duplicate_moves_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="*/10 * * * *", handler="hold", idempotency_key=key()))
            await scene.settle()
            before = await node.status("job")
            assert await node.schedule(cron(expression="* * * * *", idempotency_key=key())) is DUPLICATE
            assert await node.status("job") == before
            await scene.release()
            await scene.advance(minutes=9)
            assert scene.journal.starts("job") == [scene.at("12:00")]

    @clause("KEY-1", "the key is looked at before the definitions are compared")
    async def test_a_taken_key_is_not_answered_with_unchanged(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(b"same"))
            assert await node.schedule(keyed(b"same")) is DUPLICATE

    @clause("KEY-1", "validity is looked at before the key", lacks=Capability.SECOND_PRECISION)
    async def test_a_taken_key_does_not_hide_what_is_wrong(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed())
            with pytest.raises(UnsupportedPrecision):
                await node.schedule(cron(precision=Precision.SECOND, idempotency_key=key()))

    @clause("KEY-1", "a refused registration does not take its key", lacks=Capability.SECOND_PRECISION)
    async def test_a_refusal_does_not_take_the_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(UnsupportedPrecision):
                await node.schedule(cron(precision=Precision.SECOND, idempotency_key=key()))
            assert await node.schedule(keyed()) is REGISTERED

    @clause("KEY-1", "an UNCHANGED registration takes the key")
    async def test_unchanged_does_not_leave_the_key_free(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            assert await node.schedule(keyed()) is UNCHANGED
            assert await node.schedule(keyed(b"other")) is DUPLICATE

    @clause("KEY-1", "a REPLACED registration takes the key")
    async def test_replaced_does_not_leave_the_key_free(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            assert await node.schedule(keyed(b"new")) is REPLACED
            assert await node.schedule(keyed(b"newer")) is DUPLICATE
            assert (await stored(node)).payload == b"new"

    @clause("KEY-1", "a key belongs to its job: another job, or another key, is not held up")
    async def test_a_key_of_one_job_is_not_taken_for_another(self, scene: Scene) -> None:
        async with scene.open() as node:
            assert await node.schedule(keyed()) is REGISTERED
            assert await node.schedule(manual("other", idempotency_key=key())) is REGISTERED
            assert await node.schedule(keyed(b"new", "another key")) is REPLACED
            assert await node.schedule(keyed(b"newer")) is DUPLICATE

    @clause("KEY-1", "a registration without a key is not held up by one that had one")
    async def test_no_key_is_never_a_duplicate(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(b"first"))
            assert await node.schedule(manual(payload=b"second")) is REPLACED
            assert await node.schedule(manual(payload=b"second")) is UNCHANGED

    @clause("KEY-1", "a key outlives its job")
    async def test_removing_the_job_does_not_free_its_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed())
            await node.unschedule("job")
            assert await node.schedule(keyed()) is DUPLICATE
            assert await node.get_schedule("job") is None
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("KEY-1", "a key survives the store being reopened", level=Level.DURABLE)
    async def test_reopening_does_not_free_a_registration_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(b"first"))
        await scene.reopen()
        async with scene.open() as node:
            assert await node.schedule(keyed(b"second")) is DUPLICATE
            assert (await stored(node)).payload == b"first"


class KeyWindowClauses:
    """KEY-2, for registrations."""

    @clause("KEY-2", "one step before t0 + ttl a registration is a duplicate, at t0 + ttl it is not", uses=("virtual",))
    async def test_a_registration_key_is_not_free_before_its_end_nor_taken_at_it(self, scene: Scene) -> None:
        step = scene.harness.resolution
        ttl = timedelta(minutes=1)
        async with scene.open() as node:
            await node.schedule(keyed(b"first", ttl=ttl))
            await scene.harness.advance(ttl - step)
            assert await node.schedule(keyed(b"second", ttl=ttl)) is DUPLICATE
            await scene.harness.advance(step)
            assert await node.schedule(keyed(b"second", ttl=ttl)) is REPLACED

    @clause("KEY-2", "a duplicate does not extend the window, whatever TTL it brings", uses=("virtual",))
    async def test_a_duplicate_does_not_extend_the_window(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(ttl=timedelta(minutes=1)))
            await scene.advance(seconds=59)
            assert await node.schedule(keyed(ttl=timedelta(days=1))) is DUPLICATE
            await scene.advance(seconds=1)
            assert await node.schedule(keyed(ttl=timedelta(minutes=1))) is UNCHANGED

    @clause("KEY-2", "a duplicate does not shorten the window", uses=("virtual",))
    async def test_a_duplicate_does_not_shorten_the_window(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(ttl=timedelta(minutes=10)))
            assert await node.schedule(keyed(ttl=timedelta(seconds=1))) is DUPLICATE
            await scene.advance(minutes=5)
            assert await node.schedule(keyed()) is DUPLICATE

    @clause("KEY-2", "a key accepted again has a whole window of its own", uses=("virtual",))
    async def test_the_second_window_is_not_shorter(self, scene: Scene) -> None:
        ttl = timedelta(minutes=1)
        async with scene.open() as node:
            await node.schedule(keyed(b"1", ttl=ttl))
            await scene.advance(seconds=90)
            assert await node.schedule(keyed(b"2", ttl=ttl)) is REPLACED
            await scene.advance(seconds=59)
            assert await node.schedule(keyed(b"3", ttl=ttl)) is DUPLICATE
            await scene.advance(seconds=1)
            assert await node.schedule(keyed(b"3", ttl=ttl)) is REPLACED

    @clause("KEY-2", "the window is on the store's clock", uses=("virtual", "step"))
    async def test_the_window_is_not_on_another_clock(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(keyed(b"1", ttl=timedelta(hours=1)))
            await scene.step(minutes=59)
            assert await node.schedule(keyed(b"2", ttl=timedelta(hours=1))) is DUPLICATE
            await scene.step(minutes=1)
            assert await node.schedule(keyed(b"2", ttl=timedelta(hours=1))) is REPLACED


class KeyRaceClauses:
    """KEY-3."""

    @clause("KEY-3", "of many registrations at once with one key exactly one is accepted")
    async def test_one_key_is_not_accepted_twice_at_once(self, scene: Scene) -> None:
        async with scene.open() as node:
            outcomes = await at_once(*(node.schedule(keyed(b"%d" % number)) for number in range(16)))
            assert sorted(each.name for each in outcomes) == ["DUPLICATE"] * 15 + ["REGISTERED"]
            winner = b"%d" % outcomes.index(REGISTERED)
            assert (await stored(node)).payload == winner
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("KEY-3", "nor from many nodes", level=Level.NODES)
    async def test_one_key_is_not_accepted_on_two_nodes(self, scene: Scene) -> None:
        async with cluster(scene, 4) as nodes:
            await nodes[0].schedule(manual(payload=b"before"))
            calls = (nodes[number % 4].schedule(keyed(b"%d" % number)) for number in range(16))
            outcomes = await at_once(*calls)
            assert sorted(each.name for each in outcomes) == ["DUPLICATE"] * 15 + ["REPLACED"]
            assert (await stored(nodes[1])).payload == b"%d" % outcomes.index(REPLACED)
