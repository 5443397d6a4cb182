"""KEY-1, KEY-3: registrations whose keys are ignored, shared or freed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Registered, Registration, Removal
from rota.model.definition import JobDefinition, ScheduleOutcome
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.keys import Keys
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on, reopened


class IgnoresRegistrationKeys(InProcessBackend):
    def _register(self, new: Registration, now: datetime) -> Registered:
        return super()._register(evolve(new, idempotency_key=None), now)


class ComparesFirst(Wrapped):
    """What is unchanged is answered before anybody looks at the key."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        stored = await self.node.get_schedule(definition.job_id, scope_id=definition.scope_id)
        if stored == definition.without_key():
            return ScheduleOutcome.UNCHANGED
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


class RemembersKeysForEver(Wrapped):
    """A set in memory, looked at before anything else."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._seen: set[tuple[str, str, str]] = set()

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        key = definition.idempotency_key
        if key is None:
            answer: ScheduleOutcome = await self.node.schedule(definition)
            return answer
        mark = (definition.scope_id, definition.job_id, key.key)
        if mark in self._seen:
            return ScheduleOutcome.DUPLICATE
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        self._seen.add(mark)
        return outcome


class TheJobsKeyCountsForAll(Wrapped):
    """A call without a key is given that of the job's registration."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._keys: dict[str, Any] = {}

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        key = definition.idempotency_key or self._keys.get(definition.job_id)
        self._keys[definition.job_id] = key
        outcome: ScheduleOutcome = await self.node.schedule(evolve(definition, idempotency_key=key))
        return outcome

    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        options.setdefault("idempotency_key", self._keys.get(job_id))
        answer: UUID = await self.node.trigger_once(job_id, **options)
        return answer


class RenamedKeys(Keys):
    """Keys under another name than their own."""

    def __init__(self, rule: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._rule = rule

    def holder(self, key: Hashable, now: datetime) -> object | None:
        return super().holder(self._rule(key), now)

    def take(self, key: Hashable, holder: object, until: datetime) -> None:
        super().take(self._rule(key), holder, until)


def with_keys(make: Callable[[InProcessBackend], Keys]) -> type[InProcessBackend]:
    """A backend with other books of keys."""

    class OtherKeys(InProcessBackend):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._registration_keys = make(self)
            self._trigger_keys = make(self)

    return OtherKeys


class KeysGoWithTheJob(InProcessBackend):
    async def remove(self, removal: Removal) -> bool:
        for book in (self._registration_keys, self._trigger_keys):
            held: dict[Any, Any] = book._held
            book._held = {name: value for name, value in held.items() if name[:2] != tuple(removal.key)}
        return await super().remove(removal)


def without_keys(book: str) -> Callable[[Any], None]:
    return lambda store: setattr(store, book, Keys())


FAULTS = [
    Fault(
        "registration keys are ignored",
        "KEY-1",
        (
            *of(
                "KEY-1",
                "test_a_repeated_registration_stores_and_emits_nothing",
                "test_a_duplicate_moves_nothing",
                "test_unchanged_does_not_leave_the_key_free",
                "test_replaced_does_not_leave_the_key_free",
            ),
            *of("KEY-3", "test_one_key_is_not_accepted_twice_at_once", "test_one_key_is_not_accepted_on_two_nodes"),
        ),
        on(IgnoresRegistrationKeys),
    ),
    Fault(
        "definitions are compared before the key is looked at",
        "KEY-1",
        of("KEY-1", "test_a_taken_key_is_not_answered_with_unchanged"),
        nodes(ComparesFirst),
    ),
    Fault(
        "a node remembers keys for ever",
        "KEY-2",
        (
            *of("KEY-2", "test_the_window_is_not_on_another_clock"),
            *of("KEY-1", "test_a_taken_key_does_not_hide_what_is_wrong"),
        ),
        nodes(RemembersKeysForEver),
    ),
    Fault(
        "the job's key counts for calls without one",
        "KEY-4",
        (
            *of("KEY-1", "test_no_key_is_never_a_duplicate"),
            *of("KEY-4", "test_triggers_without_a_key_are_not_deduplicated"),
        ),
        nodes(TheJobsKeyCountsForAll),
    ),
    Fault(
        "keys are shared by all jobs",
        "KEY-4",
        (
            *of("KEY-1", "test_a_key_of_one_job_is_not_taken_for_another"),
            *of("KEY-4", "test_a_trigger_key_of_one_job_is_not_taken_for_another"),
            *of("ID-2", "test_a_key_is_not_taken_in_another_scope"),
        ),
        on(with_keys(lambda backend: RenamedKeys(lambda key: key[2]))),
    ),
    Fault(
        "keys go with the job",
        "KEY-1",
        (
            *of("KEY-1", "test_removing_the_job_does_not_free_its_key"),
            *of("KEY-2", "test_removing_the_job_does_not_free_a_trigger_key"),
        ),
        on(KeysGoWithTheJob),
    ),
    Fault(
        "registration keys are lost when reopened",
        "KEY-1",
        of("KEY-1", "test_reopening_does_not_free_a_registration_key"),
        reopened(without_keys("_registration_keys")),
    ),
]
