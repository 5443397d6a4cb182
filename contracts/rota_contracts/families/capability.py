"""CAP: declared capabilities are honoured, others are refused; none is replaced by something weaker."""

from __future__ import annotations

from typing import Any

import pytest

from rota.errors import ScheduleError, UnsupportedCapability, UnsupportedPrecision
from rota.model.capability import Capability, Precision
from rota.model.definition import ScheduleOutcome
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual
from rota_contracts.families._look import status_of, stored, ticking
from rota_contracts.scene import Scene


async def _refuses(scene: Scene, capability: Capability) -> None:
    """A scheduler that requires it cannot be made, and the refusal names both sides."""
    with pytest.raises(UnsupportedCapability) as caught:
        await _open(scene, capability)
    assert capability.name is not None
    assert capability.name in caught.value.asked
    assert capability.name not in caught.value.offered
    assert caught.value.backend


async def _open(scene: Scene, capability: Capability) -> None:
    async with scene.open(requires=capability):
        return


class AbsenceClauses:
    """CAP-1: what is not declared."""

    @clause(
        "CAP-1", "DURABLE cannot be required where it is not declared", lacks=Capability.DURABLE, uses=("scheduler",)
    )
    async def test_durability_is_not_pretended(self, scene: Scene) -> None:
        await _refuses(scene, Capability.DURABLE)

    @clause(
        "CAP-1",
        "DISTRIBUTED cannot be required where it is not declared",
        lacks=Capability.DISTRIBUTED,
        uses=("scheduler",),
    )
    async def test_distribution_is_not_pretended(self, scene: Scene) -> None:
        await _refuses(scene, Capability.DISTRIBUTED)

    @clause(
        "CAP-1",
        "SECOND_PRECISION cannot be required where it is not declared",
        lacks=Capability.SECOND_PRECISION,
        uses=("scheduler",),
    )
    async def test_second_precision_is_not_pretended(self, scene: Scene) -> None:
        await _refuses(scene, Capability.SECOND_PRECISION)

    @clause(
        "CAP-1",
        "TRANSACTIONAL_TRIGGER cannot be required where it is not declared",
        lacks=Capability.TRANSACTIONAL_TRIGGER,
        uses=("scheduler",),
    )
    async def test_transactional_triggers_are_not_pretended(self, scene: Scene) -> None:
        await _refuses(scene, Capability.TRANSACTIONAL_TRIGGER)

    @clause(
        "CAP-1",
        "PUSH_WAKEUP cannot be required where it is not declared",
        lacks=Capability.PUSH_WAKEUP,
        uses=("scheduler",),
    )
    async def test_wakeups_are_not_pretended(self, scene: Scene) -> None:
        await _refuses(scene, Capability.PUSH_WAKEUP)

    @clause(
        "CAP-1",
        "a trigger within a transaction is refused, and does not happen outside of it",
        lacks=Capability.TRANSACTIONAL_TRIGGER,
        uses=("scheduler",),
    )
    async def test_a_trigger_within_a_transaction_does_not_happen_outside_of_it(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            await node.schedule(manual())
            anything: Any = object()
            with pytest.raises(UnsupportedCapability) as caught:
                await node.trigger_once("job", within=anything, idempotency_key=key())
            assert "TRANSACTIONAL_TRIGGER" in caught.value.asked
            await scene.settle()
            assert await node.get_run_history("job") == []
            assert (await scene.run(node, "job", idempotency_key=key())).state is RunState.SUCCEEDED

    @clause(
        "CAP-1",
        "a refused capability is a ScheduleError, and a refused precision is a refused capability",
        lacks=Capability.SECOND_PRECISION,
    )
    async def test_a_refused_precision_is_not_another_kind_of_error(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(UnsupportedPrecision) as caught:
                await node.schedule(cron(precision=Precision.SECOND))
            assert isinstance(caught.value, UnsupportedCapability | ScheduleError | ValueError)
            assert caught.value.field == "precision"
            assert "second" in caught.value.asked.lower()
            assert "minute" in caught.value.offered.lower()


class PresenceClauses:
    """CAP-1: what is declared."""

    @clause("CAP-1", "everything that is declared can be required, at once", uses=("scheduler",))
    async def test_what_is_declared_is_not_refused(self, scene: Scene) -> None:
        async with scene.open(requires=scene.harness.capabilities) as node:
            await node.schedule(manual())
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED

    @clause("CAP-1", "DURABLE: jobs, queue and history are there after the store was reopened", level=Level.DURABLE)
    async def test_a_durable_store_forgets_nothing_when_reopened(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0 0 1 1 *", payload=b"x", queue="q", priority=3))
            done = await scene.run(node, "job")
            await node.pause("job", reason="so that it waits")
            waiting = await node.trigger_once("job", payload=b"y")
            before = (await node.status("job"), await node.get_run_history("job"))
        await scene.reopen()
        async with scene.open(concurrency=0) as client:
            assert (await client.status("job"), await client.get_run_history("job")) == before
            assert await scene.look(client, done.run_id) == done
            assert await stored(client) == cron(expression="0 0 1 1 *", payload=b"x", queue="q", priority=3)
            assert (await scene.look(client, waiting)).state is RunState.QUEUED


class PrecisionClauses:
    """CAP-2."""

    @clause(
        "CAP-2",
        "six fields are refused where the minute is the finest, and nothing is stored",
        lacks=Capability.SECOND_PRECISION,
    )
    async def test_six_fields_are_not_stored_by_a_backend_of_minutes(self, scene: Scene) -> None:
        async with scene.open() as node:
            for expression in ("*/5 * * * * *", "0 * * * * *"):
                with pytest.raises(UnsupportedPrecision):
                    await node.schedule(cron(expression=expression, precision=Precision.SECOND))
            assert await node.get_schedule("job") is None
            await scene.settle()
            assert await scene.events("job") == []

    @clause("CAP-2", "the precision is refused whatever the trigger is", lacks=Capability.SECOND_PRECISION)
    async def test_a_finer_precision_is_not_taken_for_the_minute(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(UnsupportedPrecision):
                await node.schedule(cron(expression="0 0 1 1 *", precision=Precision.SECOND))
            assert await node.list_schedules() == []

    @clause(
        "CAP-2", "six fields fire at their seconds, not at others", needs=Capability.SECOND_PRECISION, uses=("virtual",)
    )
    async def test_six_fields_do_not_fire_at_other_seconds(self, scene: Scene) -> None:
        await scene.start_at("12:00:01")
        async with scene.open() as node:
            outcome = await node.schedule(cron(expression="*/20 * * * * *", precision=Precision.SECOND))
            assert outcome is ScheduleOutcome.REGISTERED
            assert (await status_of(node)).next_due == scene.at("12:00:20")
            await scene.advance(seconds=60)
            runs = await node.get_run_history("job")
            wanted = [scene.at(text) for text in ("12:00:20", "12:00:40", "12:01:00")]
            assert [(run.due, run.missed_count) for run in reversed(runs)] == [(due, 0) for due in wanted]
            assert scene.journal.starts("job") == wanted

    @clause(
        "CAP-2",
        "five fields still mean minutes on a backend of seconds",
        needs=Capability.SECOND_PRECISION,
        uses=("virtual",),
    )
    async def test_five_fields_do_not_fire_every_second(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking("minutes"))
            await node.schedule(ticking("exact", precision=Precision.SECOND))
            await scene.advance(minutes=2)
            wanted = [scene.at("12:01"), scene.at("12:02")]
            assert scene.journal.starts("minutes") == scene.journal.starts("exact") == wanted
