"""KEY: keys that are ignored, shared, freed too soon or kept too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Enqueue, JobKey, Refusal, Registered, Registration, Settlement
from rota.definition import JobDefinition, ScheduleOutcome
from rota.run import RunState
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.books import Keys
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faults.base import Fault, Wrapped, nodes, of, on, reopened

_STEP = timedelta(microseconds=1)


class IgnoresRegistrationKeys(InProcessBackend):
    def _register(self, new: Registration, now: datetime) -> Registered:
        return super()._register(evolve(new, idempotency_key=None), now)


class IgnoresTriggerKeys(InProcessBackend):
    def _enqueue(self, new: Enqueue, now: datetime) -> UUID | Refusal:
        new.idempotency_key = None
        return super()._enqueue(new, now)


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


class _Keys(Keys):
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


class SharesTheBook(InProcessBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._trigger_keys = self._registration_keys


class KeysGoWithTheJob(InProcessBackend):
    async def remove(self, key: JobKey, request_id: UUID) -> bool:
        for book in (self._registration_keys, self._trigger_keys):
            held: dict[Any, Any] = book._held
            book._held = {name: value for name, value in held.items() if name[:2] != tuple(key)}
        return await super().remove(key, request_id)


class _Inclusive(Keys):
    def holder(self, key: Hashable, now: datetime) -> object | None:
        return super().holder(key, now - _STEP)


class _Early(Keys):
    def take(self, key: Hashable, holder: object, until: datetime) -> None:
        super().take(key, holder, until - _STEP)


class _Lengthening(Keys):
    """A new window is added to the old one."""

    def take(self, key: Hashable, holder: object, until: datetime) -> None:
        before = self._held.get(key)
        super().take(key, holder, until if before is None else before[1] + timedelta(minutes=1))


class _OnTheNodesClock(Keys):
    """Counts time that passed, not the store's time."""

    def __init__(self, backend: InProcessBackend) -> None:
        super().__init__()
        self._clock, self._start = backend.clock, backend.clock.now()

    def _elapsed(self) -> datetime:
        return self._start + timedelta(seconds=self._clock.monotonic())

    def holder(self, key: Hashable, now: datetime) -> object | None:
        return super().holder(key, self._elapsed())


class DuplicatesMoveTheEnd(InProcessBackend):
    """An upsert: every call writes a new end."""

    def _register(self, new: Registration, now: datetime) -> Registered:
        answer = super()._register(new, now)
        if answer is Registered.DUPLICATE and new.idempotency_key is not None:
            name = (*new.key, new.idempotency_key.key)
            self._registration_keys.take(name, object(), now + new.idempotency_key.ttl)
        return answer

    def _enqueue(self, new: Enqueue, now: datetime) -> UUID | Refusal:
        answer = super()._enqueue(new, now)
        if isinstance(answer, UUID) and new.idempotency_key is not None:
            self._trigger_keys.take((*new.key, new.idempotency_key.key), answer, now + new.idempotency_key.ttl)
        return answer


class LooksThenInserts(InProcessBackend):
    """Two statements, and a network between them."""

    async def enqueue(self, batch: Sequence[Enqueue], *, within: object | None = None) -> list[UUID | Refusal]:
        now = self.clock.now()
        for new in batch:
            key, new.idempotency_key = new.idempotency_key, None
            if key is None:
                continue
            holder = self._trigger_keys.holder((*new.key, key.key), now)
            if isinstance(holder, UUID):
                return [holder]
            await asyncio.sleep(0)
            self._trigger_keys.take((*new.key, key.key), new.run_id, now + key.ttl)
        return await super().enqueue(batch, within=within)


class KeysOfUnfinishedRuns(InProcessBackend):
    """A key is a unique index over the runs that have not ended."""

    def _file(self, lane: Lane, run: Run) -> None:
        self._free(run)
        super()._file(lane, run)

    def _file_letter(self, run: Run) -> None:
        self._free(run)
        super()._file_letter(run)

    def _free(self, run: Run) -> None:
        book = self._trigger_keys
        book._held = {name: held for name, held in book._held.items() if held[0] != run.run_id}


class KeysOfKeptRuns(KeysOfUnfinishedRuns):
    """A key is a column of the run."""

    def _file(self, lane: Lane, run: Run) -> None:
        InProcessBackend._file(self, lane, run)

    def _file_letter(self, run: Run) -> None:
        InProcessBackend._file_letter(self, run)

    def _forget(self, run: Run) -> None:
        self._free(run)
        super()._forget(run)


class KeyBlocksItsOwnRetry(InProcessBackend):
    """A retry is a trigger like any other, and its key is taken."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if new.state is RunState.RETRYING and any(held[0] == new.run_id for held in self._trigger_keys._held.values()):
            new.state, new.reason = RunState.CANCELLED, "duplicate"
        return super()._settle(new, now, keep)


class WindowBeginsWithTheRun(InProcessBackend):
    def _enqueue(self, new: Enqueue, now: datetime) -> UUID | Refusal:
        if new.idempotency_key is not None and new.delay:
            new.idempotency_key = evolve(new.idempotency_key, ttl=new.idempotency_key.ttl + new.delay)
        return super()._enqueue(new, now)


class KeyBeforeJob(InProcessBackend):
    """Looks at the key, takes it, and then finds that there is no such job."""

    def _enqueue(self, new: Enqueue, now: datetime) -> UUID | Refusal:
        key, new.idempotency_key = new.idempotency_key, None
        if key is None:
            return super()._enqueue(new, now)
        holder = self._trigger_keys.holder((*new.key, key.key), now)
        if isinstance(holder, UUID):
            return holder
        self._trigger_keys.take((*new.key, key.key), new.run_id, now + key.ttl)
        return super()._enqueue(new, now)


def _without_keys(book: str) -> Callable[[Any], None]:
    return lambda store: setattr(store, book, Keys())


_REGISTRATIONS = [
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
        on(with_keys(lambda backend: _Keys(lambda key: key[2]))),
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
        reopened(_without_keys("_registration_keys")),
    ),
]

_WINDOWS = [
    Fault(
        "a key is still taken at its end",
        "KEY-2",
        of(
            "KEY-2",
            "test_a_registration_key_is_not_free_before_its_end_nor_taken_at_it",
            "test_a_trigger_key_is_not_free_before_its_end_nor_taken_at_it",
        ),
        on(with_keys(lambda backend: _Inclusive())),
    ),
    Fault(
        "a key is free one step before its end",
        "KEY-2",
        of(
            "KEY-2",
            "test_a_registration_key_is_not_free_before_its_end_nor_taken_at_it",
            "test_a_trigger_key_is_not_free_before_its_end_nor_taken_at_it",
        ),
        on(with_keys(lambda backend: _Early())),
    ),
    Fault(
        "a duplicate moves the end of the window",
        "KEY-2",
        of(
            "KEY-2",
            "test_a_duplicate_does_not_extend_the_window",
            "test_a_duplicate_does_not_shorten_the_window",
            "test_a_repeated_trigger_does_not_extend_the_window",
        ),
        on(DuplicatesMoveTheEnd),
    ),
    Fault(
        "windows are counted from the first one",
        "KEY-2",
        of("KEY-2", "test_the_second_window_is_not_shorter"),
        on(with_keys(lambda backend: _Lengthening())),
    ),
    Fault(
        "windows are on the node's clock",
        "KEY-2",
        of("KEY-2", "test_the_window_is_not_on_another_clock"),
        on(with_keys(_OnTheNodesClock)),
    ),
    Fault(
        "a window begins when the run does",
        "KEY-2",
        of("KEY-2", "test_the_window_does_not_wait_for_the_run"),
        on(WindowBeginsWithTheRun),
    ),
    Fault(
        "a key is free when its run has ended",
        "KEY-2",
        of("KEY-2", "test_no_ending_of_the_run_frees_its_key"),
        on(KeysOfUnfinishedRuns),
    ),
    Fault(
        "a key is free when its run is forgotten",
        "KEY-2",
        of("KEY-2", "test_retention_does_not_free_a_key"),
        on(KeysOfKeptRuns),
    ),
]

_TRIGGERS = [
    Fault(
        "trigger keys are ignored",
        "KEY-4",
        of("KEY-4", "test_a_repeated_trigger_starts_nothing", "test_a_repeated_trigger_does_not_change_the_first"),
        on(IgnoresTriggerKeys),
    ),
    Fault(
        "keys are looked at and then taken",
        "KEY-4",
        of("KEY-4", "test_one_key_does_not_make_two_runs_at_once", "test_one_key_does_not_make_two_runs_on_two_nodes"),
        on(LooksThenInserts),
    ),
    Fault(
        "triggers and registrations share their keys",
        "KEY-4",
        of("KEY-4", "test_a_registration_key_does_not_take_a_trigger_key"),
        on(SharesTheBook),
    ),
    Fault(
        "a job has one key",
        "KEY-4",
        of("KEY-4", "test_another_key_is_another_run"),
        on(with_keys(lambda backend: _Keys(lambda key: key[:2]))),
    ),
    Fault(
        "the key is looked at before the job",
        "KEY-4",
        of(
            "KEY-4",
            "test_a_taken_key_does_not_hide_that_the_job_is_gone",
            "test_a_trigger_of_an_unknown_job_takes_no_key",
            "test_a_trigger_refused_by_a_full_lane_takes_no_key",
        ),
        on(KeyBeforeJob),
    ),
    Fault(
        "a key blocks the run's own retry",
        "KEY-4",
        of("KEY-4", "test_a_key_does_not_block_its_own_retry"),
        on(KeyBlocksItsOwnRetry),
    ),
    Fault(
        "trigger keys are lost when reopened",
        "KEY-4",
        of("KEY-4", "test_reopening_does_not_free_a_trigger_key"),
        reopened(_without_keys("_trigger_keys")),
    ),
]

FAULTS = [*_REGISTRATIONS, *_WINDOWS, *_TRIGGERS]
