"""A registered handler as its author holds it: callable as before, and typed where jobs and triggers are made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack
from uuid import UUID

from rota.codec import encoder
from rota.model.capability import Precision
from rota.model.definition import IdempotencyKey, JobDefinition, RetryPolicy, Trigger

if TYPE_CHECKING:
    from rota.node.context import JobContext
    from rota.protocol import JobScheduler

P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class DefinitionFields(TypedDict, total=False):
    """What a definition may say besides job, handler, trigger and payload."""

    retry: RetryPolicy
    idempotency_key: IdempotencyKey | None
    precision: Precision
    scope_id: str
    created_by: str
    timeout: timedelta | None
    queue: str
    priority: int


class TriggerFields(TypedDict, total=False):
    """What `trigger_once` takes besides job and payload."""

    scope_id: str
    delay: timedelta | None
    idempotency_key: IdempotencyKey | None
    within: object | None


class PayloadBinding(Generic[P_contra]):
    """Makes jobs and triggers of a handler with a payload; both check that the payload can be read again."""

    handler_name: str

    def __init__(self, handler_name: str, kind: Any) -> None:
        self.handler_name = handler_name
        self._encode = encoder(kind)

    def job(
        self, job_id: str, trigger: Trigger, payload: P_contra, **fields: Unpack[DefinitionFields]
    ) -> JobDefinition:
        """A definition that runs this handler; hand it to `scheduler.schedule`."""
        return JobDefinition(job_id, self.handler_name, trigger, payload=self._encode(payload), **fields)

    async def trigger(
        self, scheduler: JobScheduler, job_id: str, payload: P_contra, **fields: Unpack[TriggerFields]
    ) -> UUID:
        """Run a job of this handler once, with this payload instead of the job's (MANUAL-1)."""
        return await scheduler.trigger_once(job_id, payload=self._encode(payload), **fields)


class PlainBinding:
    """The same for a handler without payload."""

    handler_name: str

    def __init__(self, handler_name: str) -> None:
        self.handler_name = handler_name

    def job(self, job_id: str, trigger: Trigger, **fields: Unpack[DefinitionFields]) -> JobDefinition:
        """A definition that runs this handler; hand it to `scheduler.schedule`."""
        return JobDefinition(job_id, self.handler_name, trigger, **fields)

    async def trigger(self, scheduler: JobScheduler, job_id: str, **fields: Unpack[TriggerFields]) -> UUID:
        """Run a job of this handler once (MANUAL-1)."""
        return await scheduler.trigger_once(job_id, **fields)


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
