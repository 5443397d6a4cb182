"""REG-1, REG-2, REG-5: a job is stored once, whole, and registering it again disturbs nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from rota.cron import Cron, Misfire, Overlap
from rota.errors import InvalidCron, ScheduleError
from rota.model.capability import Capability, Precision
from rota.model.definition import IdempotencyKey, JobDefinition, Manual, OnEvent, RetryPolicy, ScheduleOutcome
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual
from rota_contracts.families._look import at_once, cluster, only, payloads, status_of, stored
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene

SECOND = timedelta(seconds=1)

# Nothing in it is a default.
FULL = JobDefinition(
    job_id="full",
    handler_name="ok",
    trigger=Cron("5,35 2-4 * * MON-FRI", "Europe/Berlin", misfire=Misfire.SKIP, grace=SECOND, overlap=Overlap.QUEUE),
    retry=RetryPolicy(max_attempts=None, backoff=(1.5 * SECOND, 4 * SECOND), jitter=0.25, dead_letter_after=9 * SECOND),
    payload=b"\x00\xffpayload",
    scope_id="tenant",
    created_by="ada",
    timeout=timedelta(seconds=12, microseconds=345),
    queue="slow",
    priority=-7,
)  # fmt: skip


class RegistrationClauses:
    """REG-1, REG-2."""

    @clause("REG-1", "a new job is stored as declared, and JobRegistered tells of it once")
    async def test_a_new_job_is_stored_and_told_of_once(self, scene: Scene) -> None:
        async with scene.open() as node:
            assert await node.schedule(manual(payload=b"x")) is ScheduleOutcome.REGISTERED
            assert await stored(node) == manual(payload=b"x")
            await told(scene, 1)
            event = only(await scene.events("job"))
            assert (event.event_type, event.source_module) == ("JobRegistered", "_platform.jobs")
            assert event.scope_id == "default"
            data = only(await scene.event_data("job"))
            assert (data["job_id"], data["scope_id"], data["handler_name"]) == ("job", "default", "ok")

    @clause("REG-1", "no field of a definition is lost or changed in the store")
    async def test_no_field_of_a_definition_is_lost(self, scene: Scene) -> None:
        others = [
            evolve(FULL, trigger=OnEvent("shop", "OrderPlaced", "eu")),
            evolve(FULL, trigger=OnEvent("shop", "OrderPlaced")),
            evolve(FULL, trigger=Manual(), retry=RetryPolicy(max_attempts=1, jitter=0.0), priority=2**31 - 1),
        ]
        async with scene.open() as node:
            for definition in (FULL, *others):
                await node.schedule(definition)
                assert await stored(node, "full", scope_id="tenant") == definition
                assert await node.list_schedules("tenant") == [definition]
                assert (await status_of(node, "full", scope_id="tenant")).definition == definition

    @clause("REG-1", "eight nodes at once register a job once", level=Level.NODES)
    async def test_eight_nodes_at_once_do_not_register_a_job_twice(self, scene: Scene) -> None:
        async with cluster(scene, 8) as nodes:
            outcomes = await at_once(*(node.schedule(cron(expression="0 0 1 1 *")) for node in nodes))
            assert sorted(each.name for each in outcomes) == ["REGISTERED"] + ["UNCHANGED"] * 7
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("REG-2", "the same definition again is UNCHANGED and emits nothing")
    async def test_the_same_definition_again_emits_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(FULL)
            assert await node.schedule(FULL) is ScheduleOutcome.UNCHANGED
            assert await node.schedule(evolve(FULL)) is ScheduleOutcome.UNCHANGED
            await scene.settle()
            assert await told(scene, 1, "full", scope_id="tenant") == ["JobRegistered"]

    @clause("REG-2", "a definition that differs in its key alone is the same")
    async def test_a_key_is_no_part_of_the_comparison(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(idempotency_key=key("first")))
            assert await node.schedule(manual(idempotency_key=key("second"))) is ScheduleOutcome.UNCHANGED
            assert await node.schedule(manual()) is ScheduleOutcome.UNCHANGED
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("REG-2", "the definition that another node stored is UNCHANGED here", level=Level.NODES)
    async def test_what_another_node_stored_is_not_registered_again(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as other:
            await one.schedule(FULL)
            assert await other.schedule(FULL) is ScheduleOutcome.UNCHANGED
            assert await stored(other, "full", scope_id="tenant") == FULL

    @clause(
        "REG-2", "registering unchanged over and over neither moves the next due time nor adds a run", uses=("virtual",)
    )
    async def test_registering_unchanged_does_not_move_the_next_due_time(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(expression="45 * * * *"))
            for minute in range(9 * 15):
                due = (await status_of(node)).next_due
                assert await node.schedule(cron(expression="45 * * * *")) is ScheduleOutcome.UNCHANGED
                assert (await status_of(node)).next_due == due, f"moved in minute {minute}"
                await scene.advance(minutes=1)
            assert scene.journal.starts("job") == [scene.at("12:45"), scene.at("13:45")]

    @clause("REG-2", "registering unchanged in the minute that fired does not fire it again", uses=("virtual",))
    async def test_registering_unchanged_does_not_fire_the_minute_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0 * * * *"))
            await scene.advance(seconds=20)
            await node.schedule(cron(expression="0 * * * *"))
            await scene.advance(seconds=30)
            assert scene.journal.starts("job") == [scene.at("12:00")]

    @clause("REG-2", "registering unchanged moves no queued, delayed or retrying run", uses=("virtual",))
    async def test_registering_unchanged_moves_no_pending_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            definition = manual(handler="flaky", payload=b"1")
            await node.schedule(definition)
            await node.trigger_once("job")
            await node.trigger_once("job", payload=b"0")
            await node.trigger_once("job", delay=30 * SECOND, payload=b"0")
            await scene.advance(seconds=5)
            assert await node.schedule(definition) is ScheduleOutcome.UNCHANGED
            assert (await status_of(node)).queued >= 2
            await scene.advance(seconds=30)
            began = scene.at("12:00")
            seen = [(each.payload, each.attempt, each.started - began) for each in scene.journal]
            wait = timedelta(seconds=10)
            assert seen == [(b"1", 1, 0 * wait), (b"1", 2, wait), (b"0", 1, wait), (b"0", 1, 3 * wait)]

    @clause("REG-2", "an unchanged registration does not disturb a running attempt")
    async def test_registering_unchanged_does_not_disturb_a_running_attempt(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            await node.schedule(manual(handler="hold"))
            await scene.release()
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED
            assert payloads(scene) == [b""]


_TEXT: Any = "* * * * *"

# What is wrong, and the field that the refusal must name.
_WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("timeout", lambda: manual(timeout=timedelta(0))),
    ("timeout", lambda: manual(timeout=-SECOND)),
    ("trigger", lambda: evolve(FULL, trigger=_TEXT)),
    ("payload", lambda: manual(payload="text")),
    ("priority", lambda: manual(priority=1.5)),
    ("precision", lambda: cron(expression="* * * * * *")),
    ("retry.max_attempts", lambda: manual(retry=RetryPolicy(max_attempts=0))),
    ("retry.backoff", lambda: manual(retry=RetryPolicy(backoff=()))),
    ("retry.backoff[1]", lambda: manual(retry=RetryPolicy(backoff=(SECOND, -SECOND)))),
    ("retry.jitter", lambda: manual(retry=RetryPolicy(jitter=1.5))),
    ("retry.dead_letter_after", lambda: manual(retry=RetryPolicy(dead_letter_after=timedelta(0)))),
    ("ttl", lambda: manual(idempotency_key=IdempotencyKey("k", timedelta(0)))),
    ("subject", lambda: evolve(FULL, trigger=OnEvent("shop", "OrderPlaced", ""))),
]


class RefusalClauses:
    """REG-5."""

    @clause("REG-5", "a wrong value is refused by a ScheduleError that names its field, and nothing is stored")
    async def test_a_wrong_value_stores_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            for field, wrong in _WRONG:
                with pytest.raises(ScheduleError) as caught:
                    await node.schedule(wrong())
                assert caught.value.field == field
                assert isinstance(caught.value, ValueError)
            assert await node.list_schedules() == []
            assert await scene.events(scope_id=None) == []

    @clause("REG-5", "a refused expression or zone stores nothing")
    async def test_a_wrong_expression_stores_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            for expression in ("", "* * * *", "60 * * * *", "* * * * MOO", "0 0 30 2 *", "5-1 * * * *"):
                with pytest.raises(InvalidCron):
                    await node.schedule(cron(expression=expression))
            with pytest.raises(ScheduleError) as caught:
                await node.schedule(cron(tz="Mars/Olympus"))
            assert "tz" in caught.value.field
            assert await node.list_schedules() == []

    @clause("REG-5", "a refused replacement leaves the job as it was", lacks=Capability.SECOND_PRECISION)
    async def test_a_refused_replacement_leaves_the_job_as_it_was(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(payload=b"old"))
            with pytest.raises(ScheduleError) as caught:
                await node.schedule(cron(payload=b"new", precision=Precision.SECOND))
            assert caught.value.field == "precision"
            assert await stored(node) == manual(payload=b"old")
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("REG-5", "wrong arguments of a call are refused with the field named, and nothing comes of it")
    async def test_wrong_arguments_of_a_trigger_make_no_run(self, scene: Scene) -> None:
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("payload", {"payload": "text"}),
            ("delay", {"delay": -SECOND}),
            ("delay", {"delay": 5}),
        ]
        async with scene.open() as node:
            await node.schedule(manual())
            for field, arguments in wrong:
                with pytest.raises(ScheduleError) as caught:
                    await node.trigger_once("job", **arguments)
                assert caught.value.field == field
            await scene.settle()
            assert await node.get_run_history("job") == []
