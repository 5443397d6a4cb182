"""The object that registering a handler returns: callable as before, with typed methods for jobs and triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID

from rota.codec import encoder
from rota.model.capability import Precision
from rota.model.definition import IdempotencyKey, JobDefinition, RetryPolicy, Trigger, TriggerOnce
from rota.model.validation import check_iterable, check_offers

if TYPE_CHECKING:
    from rota.node.context import JobContext
    from rota.protocol import JobScheduler

P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class DefinitionFields(TypedDict, total=False):
    """The fields of a definition besides job, handler, trigger and payload."""

    retry: RetryPolicy
    idempotency_key: IdempotencyKey | None
    precision: Precision
    scope_id: str
    created_by: str
    timeout: timedelta | None
    queue: str
    priority: int


class TriggerFields(TypedDict, total=False):
    """The arguments of `trigger_once` besides job and payload."""

    scope_id: str
    delay: timedelta | None
    at: datetime | None
    idempotency_key: IdempotencyKey | None
    within: object | None


class ManyFields(TypedDict, total=False):
    """The arguments that all triggers of one `trigger_many` share."""

    scope_id: str
    delay: timedelta | None
    at: datetime | None


class TriggersMany(Protocol):
    """A scheduler with `trigger_many`."""

    async def trigger_many(self, triggers: Iterable[TriggerOnce], /) -> list[UUID]: ...


class PayloadBinding(Generic[P_contra]):
    """Makes jobs and triggers of a handler with a payload; each checks that the payload can be decoded."""

    handler_name: str

    def __init__(self, handler_name: str, kind: Any) -> None:
        self.handler_name = handler_name
        self._encode = encoder(kind)

    def encode(self, payload: P_contra) -> bytes:
        """The payload as it is stored, for instance for a `TriggerOnce`."""
        return self._encode(payload)

    def job(
        self, job_id: str, trigger: Trigger, payload: P_contra, **fields: Unpack[DefinitionFields]
    ) -> JobDefinition:
        """A definition that runs this handler; hand it to `scheduler.schedule`."""
        return JobDefinition(job_id, self.handler_name, trigger, payload=self._encode(payload), **fields)

    async def trigger(
        self, scheduler: JobScheduler, job_id: str, payload: P_contra, **fields: Unpack[TriggerFields]
    ) -> UUID:
        """Run a job of this handler once, with this payload instead of the job's (MANUAL-1).

        A job of another handler, which could not read the payload, is refused with a ScheduleError.
        """
        check_offers("scheduler", scheduler, "JobScheduler", "trigger_once")
        data = self._encode(payload)
        return await scheduler.trigger_once(job_id, payload=data, handler_name=self.handler_name, **fields)

    async def trigger_many(
        self, scheduler: TriggersMany, job_id: str, payloads: Iterable[P_contra], **fields: Unpack[ManyFields]
    ) -> list[UUID]:
        """Run a job of this handler once for each payload, with few calls of the store: see `Scheduler.trigger_many`.

        For keys, or several jobs, make the `TriggerOnce` values yourself, with `encode`.
        """
        check_offers("scheduler", scheduler, "Scheduler", "trigger_many")
        return await scheduler.trigger_many(
            [
                TriggerOnce(job_id, self._encode(payload), handler_name=self.handler_name, **fields)
                for payload in check_iterable("payloads", payloads)
            ]
        )


class PlainBinding:
    """The same for a handler without payload."""

    handler_name: str

    def __init__(self, handler_name: str) -> None:
        self.handler_name = handler_name

    def job(self, job_id: str, trigger: Trigger, **fields: Unpack[DefinitionFields]) -> JobDefinition:
        """A definition that runs this handler; hand it to `scheduler.schedule`."""
        return JobDefinition(job_id, self.handler_name, trigger, **fields)

    async def trigger(self, scheduler: JobScheduler, job_id: str, **fields: Unpack[TriggerFields]) -> UUID:
        """Run a job of this handler once (MANUAL-1); a job of another handler is refused with a ScheduleError."""
        check_offers("scheduler", scheduler, "JobScheduler", "trigger_once")
        return await scheduler.trigger_once(job_id, handler_name=self.handler_name, **fields)


class PayloadFunction(PayloadBinding[P_contra], Generic[P_contra, R_co]):
    """A registered function with a payload; call it as before."""

    def __init__(self, handler_name: str, kind: Any, function: Callable[[JobContext, P_contra], R_co]) -> None:
        super().__init__(handler_name, kind)
        self._function = function
        update_wrapper(self, function)

    def __call__(self, ctx: JobContext, payload: P_contra, /) -> R_co:
        return self._function(ctx, payload)


class PlainFunction(PlainBinding, Generic[R_co]):
    """A registered function without payload; call it as before."""

    def __init__(self, handler_name: str, function: Callable[[JobContext], R_co]) -> None:
        super().__init__(handler_name)
        self._function = function
        update_wrapper(self, function)

    def __call__(self, ctx: JobContext, /) -> R_co:
        return self._function(ctx)
