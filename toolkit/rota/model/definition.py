"""The job as data: what runs, when, and how it is retried. Values check themselves when made (REG-5)."""

from __future__ import annotations

import math
from datetime import timedelta
from enum import Enum
from typing import Any

from attrs import Attribute, evolve, field, frozen

from rota.cron import Cron
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.validation import DEFAULT_SCOPE, check_duration, check_name, check_payload, shown


def _name(_: object, attribute: Attribute[Any], value: object) -> None:
    check_name(attribute.name, value)


@frozen
class OnEvent:
    """Run once for each matching event (EVENT-1); with a subject, only for events with exactly that subject."""

    source_module: str = field(validator=_name)
    event_type: str = field(validator=_name)
    subject: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.subject is not None:
            check_name("subject", self.subject)


@frozen
class Manual:
    """Run only when triggered."""


Trigger = Cron | OnEvent | Manual


def _seconds(*seconds: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in seconds)


def _as_backoff(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


@frozen
class RetryPolicy:
    """How failed attempts are repeated (RETRY-1 to RETRY-3).

    `backoff[n-1]` is the wait after attempt n, the last entry repeating; each wait varies by `1 ± jitter`.
    `max_attempts=None` sets no limit; `dead_letter_after` ends the run at a failure later than that.
    """

    max_attempts: int | None = 3
    backoff: tuple[timedelta, ...] = field(default=_seconds(60, 300, 900), converter=_as_backoff)
    jitter: float = 0.1
    dead_letter_after: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        if not isinstance(self.backoff, tuple) or not self.backoff:
            raise ScheduleError("retry.backoff", "must be a non-empty tuple of timedeltas")
        for position, wait in enumerate(self.backoff):
            check_duration(f"retry.backoff[{position}]", wait, zero=True)
        if isinstance(self.jitter, bool) or not isinstance(self.jitter, int | float) or not 0 <= self.jitter <= 1:
            raise ScheduleError("retry.jitter", "must be a number from 0 to 1")
        if math.isnan(self.jitter):
            raise ScheduleError("retry.jitter", "must be a number from 0 to 1")
        if self.dead_letter_after is not None:
            check_duration("retry.dead_letter_after", self.dead_letter_after)

    @classmethod
    def single_attempt(cls) -> RetryPolicy:
        """One attempt, no retry."""
        return cls(max_attempts=1)

    @classmethod
    def fixed(cls, seconds: float = 5, attempts: int | None = 3) -> RetryPolicy:
        """The same wait every time, without jitter."""
        return cls(max_attempts=attempts, backoff=_seconds(seconds), jitter=0.0)


def _check_attempts(value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ScheduleError("retry.max_attempts", "must be None (no limit) or a whole number of at least 1")


@frozen
class IdempotencyKey:
    """A key that makes a repeated call a no-op for `ttl` (KEY-1 to KEY-4)."""

    key: str = field(validator=_name)
    ttl: timedelta

    def __attrs_post_init__(self) -> None:
        check_duration("ttl", self.ttl)


@frozen
class TriggerOnce:
    """One of many triggers: what `trigger_once` takes, as a value for `Scheduler.trigger_many`."""

    job_id: str = field(validator=_name)
    payload: bytes | None = field(default=None, repr=shown)  # None: the job's
    delay: timedelta | None = None
    idempotency_key: IdempotencyKey | None = None
    scope_id: str = field(default=DEFAULT_SCOPE, validator=_name)
    handler_name: str | None = None  # the job must belong to this handler; None: to any


_DEFAULT_RETRY = RetryPolicy()


@frozen
class JobDefinition:
    """A job: `(scope_id, job_id)` names it, everything else says what to do."""

    job_id: str = field(validator=_name)
    handler_name: str = field(validator=_name)
    trigger: Cron | OnEvent | Manual
    retry: RetryPolicy = _DEFAULT_RETRY
    idempotency_key: IdempotencyKey | None = None
    precision: Precision = Precision.MINUTE
    payload: bytes = field(default=b"", repr=shown)
    scope_id: str = field(default=DEFAULT_SCOPE, validator=_name)
    created_by: str = field(default="system", validator=_name)
    timeout: timedelta | None = None
    queue: str = field(default="default", validator=_name)
    priority: int = 0

    def __attrs_post_init__(self) -> None:
        self._check_types()
        object.__setattr__(self, "payload", check_payload(self.payload))
        if isinstance(self.trigger, Cron) and self.trigger.has_seconds and self.precision is not Precision.SECOND:
            way_out = "pass precision=Precision.SECOND, or leave out the first field"
            raise ScheduleError("precision", f"a six-field expression counts seconds: {way_out}")
        if self.timeout is not None:
            check_duration("timeout", self.timeout)

    def _check_types(self) -> None:
        for name, types in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, types) or (name == "priority" and isinstance(value, bool)):
                wanted = " or ".join(kind.__name__ for kind in types)
                raise ScheduleError(name, f"must be {wanted}, not {type(value).__name__}")
        if not -(2**31) <= self.priority < 2**31:
            raise ScheduleError("priority", "must fit into 32 bits")

    def without_key(self) -> JobDefinition:
        """The definition as it is stored and compared: keys aside (REG-2)."""
        return self if self.idempotency_key is None else evolve(self, idempotency_key=None)


_TYPES: dict[str, tuple[type, ...]] = {
    "trigger": (Cron, OnEvent, Manual),
    "retry": (RetryPolicy,),
    "idempotency_key": (IdempotencyKey, type(None)),
    "precision": (Precision,),
    "priority": (int,),
}


class ScheduleOutcome(Enum):
    """What `schedule` did (REG-1 to REG-3, KEY-1)."""

    REGISTERED = "registered"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    DUPLICATE = "duplicate"


@frozen
class ScheduleDiff:
    """What `reconcile` did or would do (DECL-1): job ids, in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
