"""REG: registrations that race, repeat, forget or disturb."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import JobKey, JobRecord, Registered, Registration, schedule_text
from rota.cron import Cron
from rota.decide.occurrence import first_due
from rota.decide.registration import registration
from rota.errors import InvalidCron, UnsupportedPrecision
from rota.model.capability import Precision
from rota.model.definition import JobDefinition, Manual, ScheduleOutcome
from rota.model.validation import check_duration
from rota_backends.inprocess import InProcessBackend
from rota_contracts import declare
from tests.contracts.faulty.base import Fault, Wrapped, all_of, everywhere, nodes, of, on, replaced, rewritten, unmarked


class RegistersWithoutGuard(InProcessBackend):
    """Reads, goes over the network, and writes whatever has happened meanwhile."""

    async def standing(self, key: JobKey) -> JobRecord:
        found = await super().standing(key)
        await asyncio.sleep(0)
        return found

    def _register(self, new: Registration, now: datetime) -> Registered:
        lane = self._lanes.get(new.key)
        return super()._register(evolve(new, expected=lane.revision if lane else 0), now)


class LosesFields(InProcessBackend):
    """Has no column for the creator, and whole seconds for the timeout."""

    def _store(self, lane: Any, new: Registration, now: datetime) -> None:
        timeout = new.definition.timeout
        whole = None if timeout is None else timedelta(seconds=timeout // timedelta(seconds=1))
        kept = evolve(new.definition, created_by="system", timeout=whole)
        super()._store(lane, evolve(new, definition=kept), now)


class TellsNothing(InProcessBackend):
    """Emits no event for a registration."""

    def _store(self, lane: Any, new: Registration, now: datetime) -> None:
        records, self._records_facts = self._records_facts, False
        super()._store(lane, new, now)
        self._records_facts = records


def _stores_what_is_unchanged(
    standing: JobRecord, new: JobDefinition, key: Any, began: datetime, request_id: Any
) -> tuple[Registration | None, ScheduleOutcome]:
    made, outcome = registration(standing, new, key, began, request_id)
    if outcome is ScheduleOutcome.UNCHANGED:
        due = first_due(new, began, None)
        made = Registration(new, standing.revision, request_id, next_due=due, idempotency_key=key)
    return made, outcome


def _compares_a_digest(
    standing: JobRecord, new: JobDefinition, key: Any, began: datetime, request_id: Any
) -> tuple[Registration | None, ScheduleOutcome]:
    old = standing.job.definition if standing.job else None
    if old is not None and _digest(old) == _digest(new):
        return None, ScheduleOutcome.UNCHANGED
    return registration(standing, new, key, began, request_id)


def _digest(job: JobDefinition) -> tuple[object, ...]:
    return job.handler_name, job.payload, schedule_text(job)


class KnowsItsOwnJobsOnly(Wrapped):
    """Compares with what this node registered, not with what is stored."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._known: list[JobDefinition] = []

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        if outcome is ScheduleOutcome.UNCHANGED and definition not in self._known:
            return ScheduleOutcome.REPLACED
        self._known.append(definition)
        return outcome


class RemovesAndAdds(Wrapped):
    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        if outcome is ScheduleOutcome.UNCHANGED:
            await self.node.unschedule(definition.job_id)
            await self.node.schedule(definition)
        return outcome


class RestartsWhatRuns(Wrapped):
    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        status = await self.node.status(definition.job_id, scope_id=definition.scope_id)
        if status is not None and status.running is not None:
            await self.node.cancel(status.running)
            await self.node.trigger_once(definition.job_id)
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


class ChecksLate(Wrapped):
    """Stores first and then finds that it cannot be honoured."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        if definition.precision is Precision.SECOND:
            await self.node.schedule(evolve(definition, precision=Precision.MINUTE, trigger=Manual()))
            raise UnsupportedPrecision("late", "SECOND", "MINUTE")
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


def _any_duration(field: str, value: Any, **options: Any) -> Any:
    return value


def _forgiving_cron(expression: str, *args: Any, **options: Any) -> Cron:
    try:
        return Cron(expression, *args, **options)
    except InvalidCron:
        return Cron("0 0 1 1 *")


FAULTS = [
    Fault(
        "registrations are not guarded",
        "REG-1",
        of("REG-1", "test_eight_nodes_at_once_do_not_register_a_job_twice"),
        on(RegistersWithoutGuard),
    ),
    Fault("fields are lost", "REG-1", of("REG-1", "test_no_field_of_a_definition_is_lost"), on(LosesFields)),
    Fault(
        "a registration is not told",
        "REG-1",
        of("REG-1", "test_a_new_job_is_stored_and_told_of_once"),
        on(TellsNothing),
    ),
    Fault(
        "what is unchanged is stored again",
        "REG-2",
        of(
            "REG-2",
            "test_the_same_definition_again_emits_nothing",
            "test_a_key_is_no_part_of_the_comparison",
            "test_registering_unchanged_does_not_move_the_next_due_time",
            "test_registering_unchanged_does_not_fire_the_minute_again",
        ),
        patch=all_of(unmarked, everywhere(registration, _stores_what_is_unchanged)),
    ),
    Fault(
        "a node compares with what it registered itself",
        "REG-2",
        of("REG-2", "test_what_another_node_stored_is_not_registered_again"),
        nodes(KnowsItsOwnJobsOnly),
    ),
    Fault(
        "registering again is removing and adding",
        "REG-2",
        of("REG-2", "test_registering_unchanged_moves_no_pending_run"),
        nodes(RemovesAndAdds),
    ),
    Fault(
        "registering again restarts what runs",
        "REG-2",
        of("REG-2", "test_registering_unchanged_does_not_disturb_a_running_attempt"),
        nodes(RestartsWhatRuns),
    ),
    Fault(
        "definitions are compared by a digest",
        "REG-3",
        of(
            "REG-3",
            "test_a_change_of_any_field_is_not_overlooked",
            "test_a_change_inside_trigger_or_policy_is_not_overlooked",
        ),
        patch=everywhere(registration, _compares_a_digest),
    ),
    Fault(
        "what cannot be honoured is stored first",
        "REG-5",
        (
            *of("REG-5", "test_a_refused_replacement_leaves_the_job_as_it_was"),
            *of("KEY-1", "test_a_refusal_does_not_take_the_key"),
        ),
        nodes(ChecksLate),
    ),
    Fault(
        "durations are not checked",
        "REG-5",
        (
            *of("REG-5", "test_a_wrong_value_stores_nothing", "test_wrong_arguments_of_a_trigger_make_no_run"),
            *of("MANUAL-2", "test_a_negative_delay_creates_nothing"),
        ),
        patch=rewritten(check_duration, _any_duration),
    ),
    Fault(
        "a wrong expression becomes another one",
        "REG-5",
        of("REG-5", "test_a_wrong_expression_stores_nothing"),
        patch=replaced(declare, "Cron", _forgiving_cron),
    ),
]
