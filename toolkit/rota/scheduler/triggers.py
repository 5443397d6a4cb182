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
    OutcomeUnknown,
    RotaError,
    RunNotFound,
    ScheduleError,
    StoreUnavailable,
    TriggersRefused,
    UnsupportedCapability,
)
from rota.handlers import HandlerRegistry
from rota.model.capability import Capability, capability_names
from rota.model.causation import current_run
from rota.model.definition import IdempotencyKey, TriggerOnce, check_idempotency_key
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota.model.validation import check_duration, check_name, check_payload
from rota.scheduler.arguments import listed

_KNOWN_KEYS = 10_000  # at most
_PAGE = 1_000  # triggers that go to the store in one call, at most,
_PAGE_BYTES = 4 * 1024 * 1024  # with so much payload, or a call might take longer than it may


class Triggering:
    """What a scheduler does for `trigger_once`, `trigger_many` and `replay`."""

    def __init__(self, backend: Backend, call: RetryingCalls, handlers: HandlerRegistry, lane_limit: int) -> None:
        self._backend = backend
        self._call = call
        self._handlers = handlers
        self._lane_limit = lane_limit
        self._known_keys: set[JobKey] = set()

    def asked(
        self,
        key: JobKey,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
        handler_name: str | None = None,
    ) -> NewRun:
        """The run as the store takes it; raises for the first value that is wrong."""
        if payload is not None:
            payload = check_payload(payload, self._backend.max_payload)
        if delay is not None:
            delay = check_duration("delay", delay, zero=True)
        if idempotency_key is not None:
            idempotency_key = check_idempotency_key("idempotency_key", idempotency_key)
        new = NewRun(self._checked(key), new_run_id(), Cause.MANUAL, self._lane_limit, payload, delay, idempotency_key)
        if handler_name is not None:
            new.handler_names = self._handlers.names_of(check_name("handler_name", handler_name))
        return new

    def _checked(self, key: JobKey) -> JobKey:
        """A key of names (ID-1). Most triggers are of jobs triggered before, and looking those up costs least."""
        if type(key.scope_id) is str and type(key.job_id) is str and key in self._known_keys:
            return key
        key = JobKey(check_name("scope_id", key.scope_id), check_name("job_id", key.job_id))
        if len(self._known_keys) >= _KNOWN_KEYS:
            self._known_keys.clear()
        self._known_keys.add(key)
        return key

    async def queue(self, new: NewRun) -> UUID:
        """The run that stands for it."""
        try:
            (answer,) = await self._call(self._backend.enqueue, [new])
        except OutcomeUnknown as error:
            raise _about(new, error) from error
        return answer if type(answer) is UUID else self._accepted(new, answer)

    async def queue_within(self, new: NewRun, transaction: object) -> UUID:
        """The same inside a transaction of the caller's, who alone knows how it goes on: nothing is repeated (TX-1)."""
        if Capability.TRANSACTIONAL_TRIGGER not in self._backend.capabilities:
            offered = capability_names(self._backend.capabilities)
            raise UnsupportedCapability(self._backend.name, "TRANSACTIONAL_TRIGGER", offered, field="within")
        try:
            (answer,) = await self._backend.enqueue([new], within=transaction)
        except OutcomeUnknown as error:
            raise _about(new, error) from error
        return self._accepted(new, answer)

    async def queue_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        """All of them in the order given, or `TriggersRefused`."""
        several = [self._one_of_many(each) for each in listed(triggers)]
        answers: list[UUID | RotaError] = []
        for page in _pages(several):
            answers += await self._queue_page(page)
            if isinstance(answers[-1], STORE_ERRORS):  # later triggers must not be stored before earlier ones
                untried = StoreUnavailable("not tried: the store did not answer an earlier page")
                answers += [untried] * (len(several) - len(answers))
                break
        refused = {number: each for number, each in enumerate(answers) if isinstance(each, RotaError)}
        if refused:
            raise TriggersRefused(refused, [None if isinstance(each, RotaError) else each for each in answers])
        return [each for each in answers if isinstance(each, UUID)]

    def _one_of_many(self, trigger: TriggerOnce) -> NewRun:
        key = JobKey(trigger.scope_id, trigger.job_id)
        return self.asked(key, trigger.payload, trigger.delay, trigger.idempotency_key, trigger.handler_name)

    async def _queue_page(self, page: Sequence[NewRun]) -> list[UUID | RotaError]:
        try:
            answers = await self._call(self._backend.enqueue, page)
        except OutcomeUnknown as error:
            return [_about(new, error) for new in page]
        except StoreUnavailable as error:
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
        """The run of an earlier replay, if retention has deleted the letter."""
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
        if refusal is Refusal.OTHER_HANDLER:
            wanted = " or ".join(repr(name) for name in sorted(new.handler_names or ()))
            return ScheduleError("job_id", f"job {job_id!r} in scope {scope_id!r} does not belong to handler {wanted}")
        return RunNotFound(new.replay_of, scope_id)


def _about(new: NewRun, error: OutcomeUnknown) -> OutcomeUnknown:
    key = None if new.idempotency_key is None else new.idempotency_key.key
    return error.about(scope_id=new.key.scope_id, job_id=new.key.job_id, run_id=new.run_id, key=key)


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
