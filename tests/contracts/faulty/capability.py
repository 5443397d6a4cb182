"""CAP and API: abilities that are pretended, and nodes that outlive their `async with`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Claimed, ClaimRequest
from rota.cron import Cron
from rota.errors import NotOpen, ScheduleError, UnsupportedCapability, UnsupportedPrecision
from rota.model.capability import Capability, Precision
from rota.model.definition import JobDefinition, ScheduleOutcome
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.agenda import Agenda
from rota_backends.inprocess.records import Lane
from rota_contracts import BackendHarness
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on, reopened, replaced


class Plain(InProcessBackend):
    """Declares nothing."""

    capabilities = Capability(0)


_init = Scheduler.__init__


def _requires_nothing(node: Scheduler, *args: Any, requires: Any = None, **options: Any) -> None:
    _init(node, *args, **options)


def _requires_too_much(node: Scheduler, *args: Any, requires: Any = None, **options: Any) -> None:
    if requires:
        raise UnsupportedCapability("this one", str(requires), "nothing")
    _init(node, *args, **options)


class TriggersOutsideTheTransaction(Wrapped):
    async def trigger_once(self, job_id: str, *, within: object = None, **options: Any) -> UUID:
        answer: UUID = await self.node.trigger_once(job_id, **options)
        return answer


class MinutesForSeconds(Wrapped):
    """Rounds what it cannot do."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        if definition.precision is Precision.SECOND:
            definition = evolve(definition, precision=Precision.MINUTE, trigger=Cron("* * * * *"))
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


class _WholeMinutes(Agenda):
    def plan(self, lane: Lane, next_due: datetime | None) -> None:
        if next_due is not None and next_due.second:
            next_due = next_due.replace(second=0) + timedelta(minutes=1)
        super().plan(lane, next_due)


class _EverySecond(Agenda):
    def __init__(self, backend: InProcessBackend) -> None:
        super().__init__()
        self._backend = backend

    def plan(self, lane: Lane, next_due: datetime | None) -> None:
        soon = self._backend.clock.now().replace(microsecond=0) + timedelta(seconds=1)
        super().plan(lane, next_due and min(next_due, soon))


class RoundsToMinutes(InProcessBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._agenda = _WholeMinutes()


class TicksEverySecond(InProcessBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._agenda = _EverySecond(self)


class RefusesWithAnyError(Wrapped):
    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        try:
            outcome: ScheduleOutcome = await self.node.schedule(definition)
        except UnsupportedPrecision as error:
            raise ScheduleError("precision", error.reason) from None
        return outcome


def _forgets_history(store: Any) -> None:
    for lane in store._lanes.values():
        lane.history = None


# --- the life of a node ---


class AnswersOutside(Wrapped):
    async def get_schedule(self, job_id: str, **options: Any) -> Any:
        try:
            return await self.node.get_schedule(job_id, **options)
        except NotOpen:
            return None


class EntersTwice(Wrapped):
    async def __aenter__(self) -> Any:
        return self


class KeepsTriggers(Wrapped):
    """What a node triggers stays with it until it has a turn; a client has none."""

    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        answer: UUID = await self.node.trigger_once(job_id, delay=timedelta(days=1), **options)
        return answer


class DeliversTwice(InProcessBackend):
    """What one node was given is delivered to another one too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._delivered: list[tuple[str, Any]] = []

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        claimed = super()._claim(request, now)
        again = [claim for node_id, claim in self._delivered if node_id != request.node_id][: request.limit]
        self._delivered = [(request.node_id, claim) for claim in claimed.claims]
        claimed.claims += again
        return claimed


async def _stays(harness: BackendHarness, node: Any) -> None:
    return


def _works_always(node: Scheduler, *args: Any, concurrency: int = 32, **options: Any) -> None:
    _init(node, *args, concurrency=max(concurrency, 1), **options)


FAULTS = [
    Fault(
        "what is required is not looked at",
        "CAP-1",
        of(
            "CAP-1",
            "test_durability_is_not_pretended",
            "test_distribution_is_not_pretended",
            "test_second_precision_is_not_pretended",
            "test_transactional_triggers_are_not_pretended",
            "test_wakeups_are_not_pretended",
        ),
        on(Plain),
        patch=replaced(Scheduler, "__init__", _requires_nothing),
    ),
    Fault(
        "whatever is required is refused",
        "CAP-1",
        of("CAP-1", "test_what_is_declared_is_not_refused"),
        patch=replaced(Scheduler, "__init__", _requires_too_much),
    ),
    Fault(
        "a trigger does not join the transaction",
        "CAP-1",
        of("CAP-1", "test_a_trigger_within_a_transaction_does_not_happen_outside_of_it"),
        nodes(TriggersOutsideTheTransaction),
    ),
    Fault(
        "a refused precision is any error",
        "CAP-1",
        of("CAP-1", "test_a_refused_precision_is_not_another_kind_of_error"),
        nodes(RefusesWithAnyError),
    ),
    Fault(
        "history is lost when reopened",
        "CAP-1",
        of("CAP-1", "test_a_durable_store_forgets_nothing_when_reopened"),
        reopened(_forgets_history),
    ),
    Fault(
        "seconds become minutes",
        "CAP-2",
        of(
            "CAP-2",
            "test_six_fields_are_not_stored_by_a_backend_of_minutes",
            "test_a_finer_precision_is_not_taken_for_the_minute",
        ),
        nodes(MinutesForSeconds),
    ),
    Fault(
        "due times are whole minutes",
        "CAP-2",
        of("CAP-2", "test_six_fields_do_not_fire_at_other_seconds"),
        on(RoundsToMinutes, precision=Precision.SECOND),
    ),
    Fault(
        "a backend of seconds ticks every second",
        "CAP-2",
        of("CAP-2", "test_five_fields_do_not_fire_every_second"),
        on(TicksEverySecond, precision=Precision.SECOND),
    ),
    Fault("a node answers after it was left", "API", of("API", "test_no_method_works_outside"), nodes(AnswersOutside)),
    Fault("a node can be entered twice", "API", of("API", "test_a_node_is_not_entered_twice"), nodes(EntersTwice)),
    Fault(
        "a node that was left works on",
        "API",
        of("API", "test_a_node_that_was_left_starts_nothing"),
        patch=replaced(BackendHarness, "_leave", _stays),
    ),
    Fault(
        "a client works like a node",
        "API",
        of("API", "test_a_client_works_nothing"),
        patch=replaced(Scheduler, "__init__", _works_always),
    ),
    Fault(
        "what a client triggers stays with it",
        "API",
        of("API", "test_a_clients_trigger_does_not_wait_for_the_client"),
        nodes(KeepsTriggers),
    ),
    Fault("runs are delivered twice", "API", of("API", "test_nodes_do_not_repeat_each_others_work"), on(DeliversTwice)),
]
