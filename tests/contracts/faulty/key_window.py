"""KEY-2: windows that end too soon, too late, or with something else."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from uuid import UUID

from attrs import evolve

from rota.backend import NewRun, Refusal, Registered, Registration
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.keys import Keys
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty.base import Fault, of, on
from tests.contracts.faulty.key import with_keys

_STEP = timedelta(microseconds=1)


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

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        answer = super()._enqueue(new, now)
        if isinstance(answer, UUID) and new.idempotency_key is not None:
            self._trigger_keys.take((*new.key, new.idempotency_key.key), answer, now + new.idempotency_key.ttl)
        return answer


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


class WindowBeginsWithTheRun(InProcessBackend):
    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        if new.idempotency_key is not None and new.delay:
            new.idempotency_key = evolve(new.idempotency_key, ttl=new.idempotency_key.ttl + new.delay)
        return super()._enqueue(new, now)


FAULTS = [
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
