"""The job as data: its handler, its trigger and its retries. Values check themselves when made (REG-5)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from attrs import evolve, field, frozen

from rota.cron import Cron
from rota.cron.value import check_cron
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.choice import Choice
from rota.model.timers import At, Every, check_at, check_every
from rota.model.validation import (
    DEFAULT_SCOPE,
    Checks,
    check_duration,
    check_fraction,
    check_instant,
    check_name,
    check_payload,
    check_seconds,
    check_wait,
    exactly,
    length_only,
    member,
    optional,
    tuple_of,
    whole,
)


@frozen
class OnEvent:
    """Run once for each matching event (EVENT-1); with a subject, only for events with exactly that subject."""

    source_module: str
    event_type: str
    subject: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_on_event(self)


_check_on_event = Checks(source_module=check_name, event_type=check_name, subject=optional(check_name))


@frozen
class Manual:
    """Run only when triggered."""


Trigger = Cron | Every | At | OnEvent | Manual


_check_trigger_kind = exactly(Cron, Every, At, OnEvent, Manual)


def _check_trigger(field: str, value: object) -> Trigger:
    trigger: Trigger = _check_trigger_kind(field, value)
    if isinstance(trigger, OnEvent):
        _check_on_event(trigger)
    elif isinstance(trigger, Every):
        check_every(trigger)
    elif isinstance(trigger, At):
        check_at(trigger)
    return check_cron(trigger) if isinstance(trigger, Cron) else trigger


_DEFAULT_BACKOFF = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))


def _as_backoff(value: Any) -> Any:  # lets type checkers accept a list, which the check turns into a tuple
    return value


@frozen
class RetryPolicy:
    """How failed attempts are repeated (RETRY-1 to RETRY-3).

    `backoff[n-1]` is the wait after attempt n; the last entry repeats. Each wait is multiplied by `1 ± jitter`.
    `max_attempts=None` sets no limit. A failure later than `dead_letter_after` since the first start ends the run.
    """

    max_attempts: int | None = 3
    backoff: tuple[timedelta, ...] = field(default=_DEFAULT_BACKOFF, converter=_as_backoff)
    jitter: float = 0.1
    dead_letter_after: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        _check_retry_fields(self)

    @classmethod
    def single_attempt(cls) -> RetryPolicy:
        """One attempt, no retry."""
        return cls(max_attempts=1)

    @classmethod
    def fixed(cls, seconds: float = 5, attempts: int | None = 3) -> RetryPolicy:
        """The same wait every time, without jitter."""
        return cls(max_attempts=attempts, backoff=(check_seconds("seconds", seconds),), jitter=0.0)


_check_retry_fields = Checks(
    "retry.",
    max_attempts=optional(whole(1)),
    backoff=tuple_of(check_wait, least=1),
    jitter=check_fraction,
    dead_letter_after=optional(check_duration),
)


_check_retry_kind = exactly(RetryPolicy)


def _check_retry(field: str, value: object) -> RetryPolicy:
    retry: RetryPolicy = _check_retry_kind(field, value)
    _check_retry_fields(retry)
    return retry


@frozen
class IdempotencyKey:
    """A key that makes a repeated call a no-op for `ttl` (KEY-1 to KEY-4)."""

    key: str
    ttl: timedelta

    def __attrs_post_init__(self) -> None:
        _check_key_fields(self)


_check_key_fields = Checks(key=check_name, ttl=check_duration)
_check_key_kind = exactly(IdempotencyKey)


def check_idempotency_key(field: str, value: object) -> IdempotencyKey:
    """Return an IdempotencyKey with valid fields, or raise."""
    key: IdempotencyKey = _check_key_kind(field, value)
    _check_key_fields(key)
    return key


def _check_payload(_: str, value: object) -> bytes:
    return check_payload(value)


def check_start(at: object, delay: object) -> datetime:
    """Return the earliest start of a trigger, or raise; a delay beside it is refused (AT-2)."""
    if delay is not None:
        raise ScheduleError("at", "and delay both say when the run may start: give one of them")
    return check_instant("at", at)


@frozen
class TriggerOnce:
    """One of many triggers: the arguments of `trigger_once`, as a value for `Scheduler.trigger_many`."""

    job_id: str
    payload: bytes | None = field(default=None, repr=length_only)  # None: the job's
    delay: timedelta | None = None
    idempotency_key: IdempotencyKey | None = None
    scope_id: str = DEFAULT_SCOPE
    handler_name: str | None = None  # the job must belong to this handler; None: to any
    at: datetime | None = None  # the earliest start, instead of `delay` (AT-2)

    def __attrs_post_init__(self) -> None:
        _check_trigger_once(self)
        if self.at is not None:
            check_start(self.at, self.delay)


_check_trigger_once = Checks(
    job_id=check_name,
    payload=optional(_check_payload),
    delay=optional(check_wait),
    idempotency_key=optional(check_idempotency_key),
    scope_id=check_name,
    handler_name=optional(check_name),
    at=optional(check_instant),
)
_DEFAULT_RETRY = RetryPolicy()


@frozen
class JobDefinition:
    """A job: `(scope_id, job_id)` identifies it, the other fields define what it does and when."""

    job_id: str
    handler_name: str
    trigger: Cron | Every | At | OnEvent | Manual
    retry: RetryPolicy = _DEFAULT_RETRY
    idempotency_key: IdempotencyKey | None = None
    precision: Precision = Precision.MINUTE
    payload: bytes = field(default=b"", repr=length_only)
    scope_id: str = DEFAULT_SCOPE
    created_by: str = "system"
    timeout: timedelta | None = None
    queue: str = "default"
    priority: int = 0

    def __attrs_post_init__(self) -> None:
        _check_definition(self)
        if isinstance(self.trigger, Cron) and self.trigger.has_seconds and self.precision is not Precision.SECOND:
            way_out = "pass precision=Precision.SECOND, or leave out the first field"
            raise ScheduleError("precision", f"a six-field expression counts seconds: {way_out}")
        if isinstance(self.trigger, Every | At):
            self.trigger.check_precision(self.precision)

    def without_key(self) -> JobDefinition:
        """The definition as it is stored and compared: without its idempotency key (REG-2)."""
        return self if self.idempotency_key is None else evolve(self, idempotency_key=None)


_check_definition = Checks(
    job_id=check_name,
    handler_name=check_name,
    trigger=_check_trigger,
    retry=_check_retry,
    idempotency_key=optional(check_idempotency_key),
    precision=member(Precision),
    payload=_check_payload,
    scope_id=check_name,
    created_by=check_name,
    timeout=optional(check_duration),
    queue=check_name,
    priority=whole(-(2**31), 2**31 - 1),
)


class ScheduleOutcome(Choice):
    """The result of `schedule` (REG-1 to REG-3, KEY-1)."""

    REGISTERED = "registered"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    DUPLICATE = "duplicate"


@frozen
class ScheduleDiff:
    """The changes that `reconcile` made or would make (DECL-1): job ids, in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        _check_diff(self)


_job_ids = tuple_of(check_name, most=1_000_000)
_check_diff = Checks(added=_job_ids, changed=_job_ids, removed=_job_ids, unchanged=_job_ids)
