"""`JobApi`: permissions, scopes, redaction and the audit. Rules: ACCESS-1, ACCESS-2, ID-2, SAFE-3."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve, frozen

from rota.access import AccessContext, JobApi, RedactedDefinition, Role
from rota.backend import Removal
from rota.clock import VirtualClock
from rota.codec import to_dict
from rota.errors import AccessDenied, JobNotFound, ScheduleError
from rota.events import InMemoryEventStore
from rota.handlers import HandlerRegistry
from rota.handlers.ingestion import ingestion_job
from rota.model.definition import IdempotencyKey, JobDefinition, Manual, RetryPolicy, ScheduleOutcome
from rota.model.event import Event
from rota.model.run import RunState
from rota.protocol import JobScheduler
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE

SECRET = b"hunter2"
JOB = JobDefinition("daily", "fails", Manual(), payload=SECRET)
NOBODY = UUID(int=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fails(ctx: Any, payload: bytes) -> None:
    raise ValueError("broken")


class House:
    """A scheduler, its clock, and the audit trail of everybody who uses it."""

    def __init__(self, scheduler: JobScheduler, clock: VirtualClock) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.audit = InMemoryEventStore()

    def api(self, *roles: Role, subject: str = "ada", scope_id: str = "acme") -> JobApi:
        return JobApi(self.scheduler, AccessContext(subject, scope_id, frozenset(roles)), self.audit, clock=self.clock)

    async def trail(self) -> list[tuple[str, str, str | None, str | None]]:
        entries = [(event, json.loads(event.data)) for _, event in await self.audit.read(limit=1000)]
        return [(event.event_type, data["action"], event.subject, data["detail"]) for event, data in entries]

    async def dead_letter(self) -> UUID:
        job = evolve(JOB, retry=JOB.retry.single_attempt(), scope_id="acme")
        await self.scheduler.schedule(job)
        run_id = await self.scheduler.trigger_once("daily", scope_id="acme")
        await self.clock.advance(timedelta(0))
        run = await self.scheduler.get_run(run_id, scope_id="acme")
        assert run is not None
        assert run.state is RunState.DEAD
        return run_id


@pytest.fixture
async def house() -> AsyncIterator[House]:
    handlers = HandlerRegistry()
    handlers.register("fails")(fails)
    clock = VirtualClock(NOW)
    async with Scheduler(InProcessBackend(clock=clock), handlers) as scheduler:
        yield House(scheduler, clock)


Call = Callable[[JobApi], Awaitable[object]]

WRITES: dict[str, Call] = {
    "schedule": lambda api: api.schedule(evolve(JOB, payload=b"changed")),
    "unschedule": lambda api: api.unschedule("daily"),
    "trigger_once": lambda api: api.trigger_once("daily"),
    "pause": lambda api: api.pause("daily", reason="holiday"),
    "resume": lambda api: api.resume("daily"),
    "cancel": lambda api: api.cancel(NOBODY),
    "replay": lambda api: api.replay(NOBODY),
    "discard": lambda api: api.discard(NOBODY),
    "reveal_payload": lambda api: api.reveal_payload("daily"),
}
READS: dict[str, Call] = {
    "get_schedule": lambda api: api.get_schedule("daily"),
    "list_schedules": lambda api: api.list_schedules(),
    "status": lambda api: api.status("daily"),
    "get_run": lambda api: api.get_run(NOBODY),
    "get_run_history": lambda api: api.get_run_history("daily"),
    "dead_letters": lambda api: api.dead_letters(),
    "health": lambda api: api.health(),
}


class Untouchable:
    """A scheduler whose methods must not be called."""

    def __getattr__(self, name: str) -> Any:
        def call(*_: object, **__: object) -> None:
            raise AssertionError(f"{name} was called")

        return call


@pytest.mark.parametrize("action", WRITES)
@pytest.mark.parametrize("roles", [(Role.MEMBER,), (Role.VIEWER,), (Role.MEMBER, Role.VIEWER), ()])
async def test_writes_need_owner_or_admin_and_are_checked_before_anything_happens(
    action: str, roles: tuple[Role, ...]
) -> None:
    audit, nobody = InMemoryEventStore(), Untouchable()
    scheduler: Any = nobody
    api = JobApi(scheduler, AccessContext("eve", "acme", frozenset(roles)), audit)
    with pytest.raises(AccessDenied) as caught:
        await WRITES[action](api)
    assert (caught.value.subject, caught.value.action, caught.value.scope_id) == ("eve", action, "acme")
    ((_, event),) = await audit.read()
    assert (event.source_module, event.event_type, event.scope_id) == ("_platform.access", "JobActionDenied", "acme")
    assert json.loads(event.data)["subject"] == "eve"


@pytest.mark.parametrize("action", WRITES | READS)
@pytest.mark.parametrize("context", [AccessContext("eve", "_platform", frozenset(Role)), AccessContext("eve", "a", ())])
async def test_without_a_role_or_in_the_platforms_scope_everything_is_denied(
    action: str, context: AccessContext
) -> None:
    nobody: Any = Untouchable()
    with pytest.raises(AccessDenied):
        await (WRITES | READS)[action](JobApi(nobody, context))


@pytest.mark.parametrize("action", READS)
@pytest.mark.parametrize("role", Role)
async def test_every_role_may_read_and_nothing_is_audited(house: House, action: str, role: Role) -> None:
    await READS[action](house.api(role))
    assert await house.trail() == []


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
async def test_scope_and_creator_come_from_the_context(house: House, role: Role) -> None:
    forged = evolve(JOB, scope_id="other", created_by="root")
    assert await house.api(role).schedule(forged) is ScheduleOutcome.REGISTERED
    assert await house.scheduler.list_schedules("other") == []
    stored = await house.scheduler.get_schedule("daily", scope_id="acme")
    assert stored == evolve(JOB, scope_id="acme", created_by="ada")


async def test_nothing_of_another_scope_can_be_reached(house: House) -> None:
    letter = await house.dead_letter()
    stranger = house.api(Role.OWNER, scope_id="rival")
    assert await stranger.get_schedule("daily") is None
    assert await stranger.status("daily") is None
    assert await stranger.list_schedules() == []
    assert await stranger.get_run(letter) is None
    assert await stranger.get_run_history("daily") == []
    assert await stranger.dead_letters() == []
    assert await stranger.unschedule("daily") is False
    assert await stranger.cancel(letter) is False
    assert await stranger.discard(letter) is False
    for call in (stranger.trigger_once("daily"), stranger.pause("daily", reason="x"), stranger.reveal_payload("daily")):
        with pytest.raises(JobNotFound):
            await call
    assert await house.scheduler.get_schedule("daily", scope_id="acme") is not None


async def test_writes_are_audited_with_what_became_of_them(house: House) -> None:
    api = house.api(Role.OWNER)
    await api.schedule(JOB)
    run_id = await api.trigger_once("daily", delay=timedelta(hours=1))
    await api.pause("daily", reason="holiday")
    await api.resume("daily")
    await api.cancel(run_id)
    await api.discard(NOBODY)
    await api.unschedule("daily")
    assert await house.trail() == [
        ("JobActionAllowed", "schedule", "daily", "REGISTERED"),
        ("JobActionAllowed", "trigger_once", "daily", str(run_id)),
        ("JobActionAllowed", "pause", "daily", None),
        ("JobActionAllowed", "resume", "daily", None),
        ("JobActionAllowed", "cancel", str(run_id), "True"),
        ("JobActionAllowed", "discard", str(NOBODY), "False"),
        ("JobActionAllowed", "unschedule", "daily", "True"),
    ]


async def test_a_write_that_fails_is_audited_as_that(house: House) -> None:
    with pytest.raises(JobNotFound):
        await house.api(Role.OWNER).trigger_once("unknown")
    assert await house.trail() == [("JobActionFailed", "trigger_once", "unknown", "JobNotFound")]


async def test_an_audit_entry_says_who_where_and_when(house: House) -> None:
    await house.api(Role.OWNER, Role.VIEWER).schedule(JOB)
    ((_, event),) = await house.audit.read()
    assert (event.source_module, event.scope_id, event.occurred_at) == ("_platform.access", "acme", NOW)
    data = json.loads(event.data)
    assert (data["subject"], data["roles"], data["synthetic"]) == ("ada", ["owner", "viewer"], False)


async def test_a_denied_call_with_an_impossible_name_is_denied_all_the_same(house: House) -> None:
    with pytest.raises(AccessDenied):
        await house.api(Role.VIEWER).trigger_once("")
    assert await house.trail() == [("JobActionDenied", "trigger_once", None, None)]


async def test_a_dead_letter_is_replayed_and_discarded_by_an_admin(house: House) -> None:
    letter = await house.dead_letter()
    api = house.api(Role.ADMIN)
    assert [run.run_id for run in await api.dead_letters()] == [letter]
    again = await api.replay(letter)
    run = await api.get_run(again)
    assert run is not None
    assert run.replay_of == letter


async def test_keys_pass_through(house: House) -> None:
    api, key = house.api(Role.OWNER), IdempotencyKey("once", timedelta(hours=1))
    keyed = evolve(JOB, idempotency_key=key)
    assert [await api.schedule(keyed), await api.schedule(keyed)] == [
        ScheduleOutcome.REGISTERED,
        ScheduleOutcome.DUPLICATE,
    ]
    first = await api.trigger_once("daily", idempotency_key=key)
    assert await api.trigger_once("daily", idempotency_key=key) == first


class Hostile:
    """Raises when it is written down."""

    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __str__


@pytest.mark.parametrize("role", [Role.OWNER, Role.VIEWER])
@pytest.mark.parametrize(
    "wrong", [None, 5, b"daily", Hostile(), object], ids=["None", "5", "bytes", "hostile", "class"]
)
@pytest.mark.parametrize("action", [action for action in WRITES if action != "schedule"])
async def test_a_call_that_fails_is_audited_whatever_its_argument_was(
    house: House, role: Role, wrong: Any, action: str
) -> None:
    """SAFE-3."""
    arguments = {"reason": "holiday"} if action == "pause" else {}
    with pytest.raises(AccessDenied if role is Role.VIEWER else ScheduleError):
        await getattr(house.api(role), action)(wrong, **arguments)
    verdict = "JobActionDenied" if role is Role.VIEWER else "JobActionFailed"
    assert [entry[:3] for entry in await house.trail()] == [(verdict, action, None)]


@pytest.mark.parametrize("wrong", [None, 5, "daily", Hostile()], ids=["None", "5", "text", "hostile"])
async def test_scheduling_what_is_no_definition_names_the_field_and_is_audited(house: House, wrong: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        await house.api(Role.OWNER).schedule(wrong)
    assert caught.value.field == "definition"
    ((verdict, action, _, detail),) = await house.trail()
    assert (verdict, action, detail) == ("JobActionFailed", "schedule", "ScheduleError")


@pytest.mark.parametrize(
    ("field", "value"),
    [("handler_name", "_platform.dataingestion.run"), ("handler_name", "_x"), ("job_id", "_job"), ("queue", "_queue")],
)
async def test_names_of_the_platform_cannot_be_scheduled_by_a_tenant(house: House, field: str, value: str) -> None:
    """ID-2."""
    changes: Any = {field: value}
    definition = evolve(JOB, **changes)
    with pytest.raises(ScheduleError, match="platform") as caught:
        await house.api(Role.OWNER).schedule(definition)
    assert caught.value.field == field
    assert await house.scheduler.list_schedules("acme") == []
    platform = AccessContext("rota", "acme", {Role.ADMIN}, synthetic=True)
    assert await JobApi(house.scheduler, platform).schedule(definition) is ScheduleOutcome.REGISTERED


@pytest.mark.parametrize("source", ["vault", "missing", "Mailer"])
async def test_a_tenant_does_not_learn_which_services_there_are(source: str) -> None:
    """ID-2: a service that is not a data source reads like one that does not exist."""
    clock = VirtualClock(NOW)
    services: Any = {"vault": "hunter2", "invoices": object()}
    async with Scheduler(InProcessBackend(clock=clock), HandlerRegistry(), services=services) as scheduler:
        job = ingestion_job("import", "invoices", scope_id="acme", retry=RetryPolicy.single_attempt())
        await scheduler.schedule(job)
        api = JobApi(scheduler, AccessContext("ada", "acme", {Role.OWNER}))
        run_id = await api.trigger_once("import", payload=ingestion_job("x", source).payload)
        await clock.advance(timedelta(seconds=1))
        run = await api.get_run(run_id)
    assert run is not None
    assert run.error is not None
    assert run.error.startswith(f"there is no data source {source!r}")
    assert "hunter2" not in run.error
    assert ("vault" in run.error) is (source == "vault")


class FailingStore(InMemoryEventStore):
    async def write(self, *events: Event) -> int:
        raise OSError("disk full")


async def test_a_failing_audit_neither_undoes_a_write_nor_hides_a_denial(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.audit = FailingStore()
    assert await house.api(Role.OWNER).schedule(JOB) is ScheduleOutcome.REGISTERED
    with pytest.raises(AccessDenied):
        await house.api(Role.VIEWER).schedule(JOB)
    assert [record.levelno for record in caplog.records if record.name == "rota.access"].count(logging.ERROR) == 2


class HangingStore(InMemoryEventStore):
    """Takes its time, and writes in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written_to = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def write(self, *events: Event) -> int:
        self.is_written_to.set()
        await self.goes_on.wait()
        return await super().write(*events)


async def test_who_goes_away_while_the_audit_is_written_is_audited_all_the_same(house: House) -> None:
    house.audit = audit = HangingStore()
    acting = asyncio.create_task(house.api(Role.OWNER).schedule(JOB))
    await audit.is_written_to.wait()
    acting.cancel()
    await asyncio.wait({acting})
    assert acting.cancelled()
    audit.goes_on.set()
    async with asyncio.timeout(PATIENCE):
        while not await house.trail():  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert await house.trail() == [("JobActionAllowed", "schedule", "daily", "REGISTERED")]


class NeverAnswers(InProcessBackend):
    """Does as it is told; whoever asked never hears of it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_done = asyncio.Event()

    async def remove(self, removal: Removal) -> bool:
        await super().remove(removal)
        self.is_done.set()
        await asyncio.Event().wait()
        return True


async def test_who_goes_away_while_something_is_done_is_audited_all_the_same() -> None:
    backend, clock = NeverAnswers(), VirtualClock(NOW)
    async with Scheduler(backend, HandlerRegistry()) as scheduler:
        house = House(scheduler, clock)
        await house.api(Role.OWNER).schedule(JOB)
        acting = asyncio.create_task(house.api(Role.OWNER).unschedule("daily"))
        await backend.is_done.wait()
        acting.cancel()
        await asyncio.wait({acting})
        assert await house.api(Role.OWNER).get_schedule("daily") is None
        assert (await house.trail())[1:] == [("JobActionFailed", "unschedule", "daily", "CancelledError")]


# --- payloads ---


async def test_definitions_come_without_payload_but_with_its_size(house: House) -> None:
    api = house.api(Role.OWNER)
    await api.schedule(JOB)
    one = await api.get_schedule("daily")
    status = await api.status("daily")
    assert status is not None
    (listed,) = await api.list_schedules()
    for definition in (one, status.definition, listed):
        assert isinstance(definition, RedactedDefinition)
        assert (definition.payload, definition.payload_size) == (b"", len(SECRET))
        assert (definition.job_id, definition.handler_name) == ("daily", "fails")
        assert SECRET.decode() not in repr(definition) + json.dumps(to_dict(definition))


async def test_a_payload_is_revealed_to_owners_and_only_with_a_trail(house: House) -> None:
    api = house.api(Role.ADMIN)
    await api.schedule(JOB)
    assert await api.reveal_payload("daily") == SECRET
    assert (await house.trail())[-1] == ("JobActionAllowed", "reveal_payload", "daily", "7 bytes")
    house.audit = FailingStore()
    with pytest.raises(OSError, match="disk full"):
        await house.api(Role.ADMIN).reveal_payload("daily")


async def test_no_payload_reaches_the_trail_or_the_log(house: House, caplog: pytest.LogCaptureFixture) -> None:
    api = house.api(Role.OWNER)
    with caplog.at_level(logging.DEBUG):
        await api.schedule(JOB)
        await api.trigger_once("daily", payload=SECRET)
        await api.reveal_payload("daily")
        with pytest.raises(AccessDenied):
            await house.api(Role.VIEWER).schedule(JOB)
    trail = b"".join(event.data for _, event in await house.audit.read())
    assert SECRET not in trail
    assert SECRET.decode() not in caplog.text
    assert [record.levelno for record in caplog.records if record.name == "rota.access"][-1] == logging.WARNING


async def test_a_redacted_definition_cannot_wipe_the_payload(house: House) -> None:
    api = house.api(Role.OWNER)
    await api.schedule(JOB)
    shown = await api.get_schedule("daily")
    assert shown is not None
    with pytest.raises(ScheduleError, match="reveal_payload"):
        await api.schedule(shown)
    filled = evolve(shown, payload=await api.reveal_payload("daily"), payload_size=0)
    assert await api.schedule(filled) is ScheduleOutcome.UNCHANGED


async def test_a_definition_that_was_read_without_its_payload_replaces_nothing(house: House) -> None:
    await house.api(Role.OWNER).schedule(JOB)
    read = await house.api(Role.VIEWER).get_schedule("daily")
    assert read is not None
    with pytest.raises(ScheduleError, match="was removed when"):
        await house.scheduler.schedule(read)
    stored = await house.scheduler.get_schedule("daily", scope_id="acme")
    assert stored is not None
    assert stored.payload == SECRET


@frozen
class OfATeam(JobDefinition):
    """An application's own kind of definition."""

    team: str = "red"


async def test_a_definition_of_another_class_is_the_same_job(house: House) -> None:
    assert await house.scheduler.schedule(OfATeam("weekly", "fails", Manual())) is ScheduleOutcome.REGISTERED
    assert await house.scheduler.schedule(JobDefinition("weekly", "fails", Manual())) is ScheduleOutcome.UNCHANGED
