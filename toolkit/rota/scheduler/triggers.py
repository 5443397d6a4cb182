"""Runs on request, one or many: checked, then queued in the store (MANUAL-1, KEY-4, RETRY-5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from attrs import evolve

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
from rota.model.definition import IdempotencyKey, TriggerOnce, check_idempotency_key, check_start
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota.model.validation import check_duration, check_name, check_payload
from rota.scheduler.arguments import checked_triggers

_MAX_KNOWN_KEYS = 10_000
_PAGE = 1_000  # most triggers in one call of the store
_PAGE_BYTES = 4 * 1024 * 1024  # most payload in one call of the store: a larger call might time out


class Triggering:
    """The scheduler's calls `trigger_once`, `trigger_many` and `replay`."""

    def __init__(self, backend: Backend, call: RetryingCalls, handlers: HandlerRegistry, lane_limit: int) -> None:
        self._backend = backend
        self._call = call
        self._handlers = handlers
        self._lane_limit = lane_limit
        self._known_keys: set[JobKey] = set()

    def new_run(
        self,
        key: JobKey,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
        handler_name: str | None = None,
    ) -> NewRun:
        """The run to store; raises for the first wrong value."""
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
        """Check both names (ID-1). Checked keys are remembered, because most triggers repeat a known job."""
        if type(key.scope_id) is str and type(key.job_id) is str and key in self._known_keys:
            return key
        key = JobKey(check_name("scope_id", key.scope_id), check_name("job_id", key.job_id))
        if len(self._known_keys) >= _MAX_KNOWN_KEYS:
            self._known_keys.clear()
        self._known_keys.add(key)
        return key

    async def queue(self, new: NewRun) -> UUID:
        """Store the run; returns its id, or the id of the earlier run with the same key."""
        try:
            (answer,) = await self._call(self._backend.enqueue, [new])
        except OutcomeUnknown as error:
            raise _about(new, error) from error
        return answer if type(answer) is UUID else self._id_or_raise(new, answer)

    async def queue_within(self, new: NewRun, transaction: object) -> UUID:
        """The same inside the caller's transaction. Never retried: an error may have ended the transaction (TX-1)."""
        if Capability.TRANSACTIONAL_TRIGGER not in self._backend.capabilities:
            offered = capability_names(self._backend.capabilities)
            raise UnsupportedCapability(self._backend.name, "TRANSACTIONAL_TRIGGER", offered, field="within")
        try:
            (answer,) = await self._backend.enqueue([new], within=transaction)
        except OutcomeUnknown as error:
            raise _about(new, error) from error
        return self._id_or_raise(new, answer)

    async def queue_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        """Store all in the order given; returns their ids or raises `TriggersRefused`."""
        new_runs = [self._one_of_many(each) for each in await self._with_delays(checked_triggers(triggers))]
        answers: list[UUID | RotaError] = []
        for page in _pages(new_runs):
            answers += await self._queue_page(page)
            if isinstance(answers[-1], STORE_ERRORS):  # later triggers must not be stored before earlier ones
                untried = StoreUnavailable("not tried: the store did not answer an earlier page")
                answers += [untried] * (len(new_runs) - len(answers))
                break
        refused = {number: each for number, each in enumerate(answers) if isinstance(each, RotaError)}
        if refused:
            raise TriggersRefused(refused, [None if isinstance(each, RotaError) else each for each in answers])
        return [each for each in answers if isinstance(each, UUID)]

    async def delay_until(self, at: datetime, delay: timedelta | None) -> timedelta:
        """The time from now, on the store's clock, to the earliest start of a run (AT-2)."""
        start = check_start(at, delay)
        return max(start - await self._call(self._backend.now), timedelta(0))

    async def _with_delays(self, triggers: Sequence[TriggerOnce]) -> Sequence[TriggerOnce]:
        if all(each.at is None for each in triggers):
            return triggers
        now = await self._call(self._backend.now)
        return [
            each if each.at is None else evolve(each, at=None, delay=max(each.at - now, timedelta(0)))
            for each in triggers
        ]

    def _one_of_many(self, trigger: TriggerOnce) -> NewRun:
        key = JobKey(trigger.scope_id, trigger.job_id)
        return self.new_run(key, trigger.payload, trigger.delay, trigger.idempotency_key, trigger.handler_name)

    async def _queue_page(self, page: Sequence[NewRun]) -> list[UUID | RotaError]:
        try:
            answers = await self._call(self._backend.enqueue, page)
        except OutcomeUnknown as error:
            return [_about(new, error) for new in page]
        except StoreUnavailable as error:
            return [error] * len(page)
        return [
            answer if isinstance(answer, UUID) else self._error_of(new, answer)
            for new, answer in zip(page, answers, strict=True)
        ]

    async def replay(self, letter: UUID, key: JobKey) -> UUID:
        """A new run for a dead letter of this job."""
        cause = current_run.get()
        depth = 0 if cause is None else cause.depth + 1  # a replay by a handler continues its chain (EVENT-6)
        return await self.queue(
            NewRun(key, new_run_id(), Cause.REPLAY, self._lane_limit, replay_of=letter, depth=depth)
        )

    async def replayed(self, letter: UUID, scope_id: str) -> UUID | None:
        """The run of an earlier replay, if retention has deleted the letter."""
        new = NewRun(JobKey(scope_id, ""), new_run_id(), Cause.REPLAY, 0, replay_of=letter)
        (answer,) = await self._call(self._backend.enqueue, [new])
        return answer if isinstance(answer, UUID) else None

    def _id_or_raise(self, new: NewRun, answer: UUID | Refusal) -> UUID:
        if isinstance(answer, UUID):
            return answer
        raise self._error_of(new, answer)

    def _error_of(self, new: NewRun, refusal: Refusal) -> RotaError:
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


def _pages(new_runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
    start = size = 0
    for number, each in enumerate(new_runs):
        weight = len(each.payload or b"")
        if number - start == _PAGE or (size + weight > _PAGE_BYTES and number > start):
            yield new_runs[start:number]
            start, size = number, 0
        size += weight
    if new_runs:
        yield new_runs[start:]
