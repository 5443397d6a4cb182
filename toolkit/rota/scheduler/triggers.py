"""Runs that callers ask for, one or many: checked first, then queued by the store (MANUAL-1, KEY-4, RETRY-5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from rota.backend.messages import JobKey, NewRun, Refusal
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS, RetryingCalls
from rota.errors import (
    JobNotFound,
    LaneFull,
    RotaError,
    RunNotFound,
    ScheduleError,
    StoreUnavailable,
    TriggersRefused,
    UnsupportedCapability,
)
from rota.model.capability import Capability, capability_names
from rota.model.causation import current_run
from rota.model.definition import IdempotencyKey, TriggerOnce
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota.model.validation import check_duration, check_name, check_payload

_KNOWN_KEYS = 10_000  # at most
_PAGE = 1_000  # triggers that go to the store in one call, at most,
_PAGE_BYTES = 4 * 1024 * 1024  # with so much payload, or a call might take longer than it may


class Triggering:
    """What a scheduler does for `trigger_once`, `trigger_many` and `replay`."""

    def __init__(self, backend: Backend, call: RetryingCalls, lane_limit: int) -> None:
        self._backend = backend
        self._call = call
        self._lane_limit = lane_limit
        self._known_keys: set[JobKey] = set()

    def asked(
        self,
        key: JobKey,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
    ) -> NewRun:
        """A run as the store takes it, of values that are in order."""
        if payload is not None:
            payload = check_payload(payload, self._backend.max_payload)
        if delay is not None:
            check_duration("delay", delay, zero=True)
        if idempotency_key is not None and not isinstance(idempotency_key, IdempotencyKey):
            raise ScheduleError("idempotency_key", "must be an IdempotencyKey")
        return NewRun(self._checked(key), new_run_id(), Cause.MANUAL, self._lane_limit, payload, delay, idempotency_key)

    def _checked(self, key: JobKey) -> JobKey:
        """A key of names (ID-1). Most triggers are of jobs triggered before, and looking those up costs least."""
        try:
            if key in self._known_keys:
                return key
        except TypeError:  # not even hashable, so not a name
            pass
        check_name("scope_id", key.scope_id)
        check_name("job_id", key.job_id)
        if len(self._known_keys) >= _KNOWN_KEYS:
            self._known_keys.clear()
        self._known_keys.add(key)
        return key

    async def queue(self, new: NewRun) -> UUID:
        """The run that stands for it."""
        (answer,) = await self._call(self._backend.enqueue, [new])
        return answer if type(answer) is UUID else self._accepted(new, answer)

    async def queue_within(self, new: NewRun, transaction: object) -> UUID:
        """The same inside a transaction of the caller's, who alone knows how it goes on: nothing is repeated (TX-1)."""
        if Capability.TRANSACTIONAL_TRIGGER not in self._backend.capabilities:
            offered = capability_names(self._backend.capabilities)
            raise UnsupportedCapability(self._backend.name, "TRANSACTIONAL_TRIGGER", offered, field="within")
        (answer,) = await self._backend.enqueue([new], within=transaction)
        return self._accepted(new, answer)

    async def queue_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        """All of them in the order given, or `TriggersRefused`."""
        several = [self._one_of_many(each) for each in triggers]
        answers: list[UUID | RotaError] = []
        for page in _pages(several):
            answers += await self._queue_page(page)
            if isinstance(answers[-1], STORE_ERRORS):  # the store is away, and what comes later must not come first
                untried = StoreUnavailable("not tried: the store did not answer before")
                answers += [untried] * (len(several) - len(answers))
                break
        refused = {number: each for number, each in enumerate(answers) if isinstance(each, RotaError)}
        if refused:
            raise TriggersRefused(refused, [None if isinstance(each, RotaError) else each for each in answers])
        return [each for each in answers if isinstance(each, UUID)]

    def _one_of_many(self, trigger: TriggerOnce) -> NewRun:
        if not isinstance(trigger, TriggerOnce):
            raise ScheduleError("triggers", f"must be TriggerOnce values, not {type(trigger).__name__}")
        key = JobKey(trigger.scope_id, trigger.job_id)
        return self.asked(key, trigger.payload, trigger.delay, trigger.idempotency_key)

    async def _queue_page(self, page: Sequence[NewRun]) -> list[UUID | RotaError]:
        try:
            answers: list[UUID | Refusal] = await self._call(self._backend.enqueue, page)
        except STORE_ERRORS as error:
            return [error] * len(page)
        return [
            answer if isinstance(answer, UUID) else self._refused(new, answer)
            for new, answer in zip(page, answers, strict=True)
        ]

    async def replay(self, letter: UUID, key: JobKey) -> UUID:
        """A new run for a dead letter of this job."""
        cause = current_run.get()
        depth = 0 if cause is None else cause.depth + 1  # a handler that replays goes on with its chain (EVENT-6)
        return await self.queue(
            NewRun(key, new_run_id(), Cause.REPLAY, self._lane_limit, replay_of=letter, depth=depth)
        )

    async def replayed(self, letter: UUID, scope_id: str) -> UUID | None:
        """By which run, if retention has forgotten the letter and with it whose it was."""
        new = NewRun(JobKey(scope_id, ""), new_run_id(), Cause.REPLAY, 0, replay_of=letter)
        (answer,) = await self._call(self._backend.enqueue, [new])
        return answer if isinstance(answer, UUID) else None

    def _accepted(self, new: NewRun, answer: UUID | Refusal) -> UUID:
        if isinstance(answer, UUID):
            return answer
        raise self._refused(new, answer)

    def _refused(self, new: NewRun, refusal: Refusal) -> RotaError:
        scope_id, job_id = new.key
        if refusal is Refusal.NO_SUCH_JOB:
            return JobNotFound(job_id, scope_id)
        if refusal is Refusal.LANE_FULL:
            return LaneFull(job_id, scope_id, self._lane_limit)
        return RunNotFound(new.replay_of, scope_id)


def _pages(several: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
    start = size = 0
    for number, each in enumerate(several):
        weight = len(each.payload or b"")
        if number - start == _PAGE or (size + weight > _PAGE_BYTES and number > start):
            yield several[start:number]
            start, size = number, 0
        size += weight
    if several:
        yield several[start:]
