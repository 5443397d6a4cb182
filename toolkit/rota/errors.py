"""Every error Rota raises. Each names the wrong value and, where possible, the remedy.

At the end: functions that turn exceptions of other code into text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any
from uuid import UUID

_QUOTED = 100  # characters of a value that an error text repeats


class RotaError(Exception):
    """The base of all errors that Rota raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default unpickling would call the constructor with the message, but constructors take other arguments.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[RotaError], args: tuple[Any, ...], state: dict[str, Any]) -> RotaError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ScheduleError(RotaError, ValueError):
    """A value that cannot be accepted; `field` names it (REG-5). Nothing was stored."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidCron(ScheduleError):
    """A cron expression that is refused (CRON-1, CRON-10); points at the field and the character.

    `position` is the index of the offending character in `expression`, `part` the name of the cron field.
    """

    def __init__(self, expression: str, reason: str, *, position: int = 0, part: str = "expression") -> None:
        super().__init__("trigger.expression", f"{reason} ({part}, character {position + 1})")
        self.expression = expression
        self.position = position
        self.part = part

    def __str__(self) -> str:
        start = max(0, self.position - _QUOTED // 2) if len(self.expression) > _QUOTED else 0
        quoted = self.expression[start : start + _QUOTED]
        return f"{super().__str__()}\n    {quoted}\n    {' ' * (self.position - start)}^"


class PayloadTooLarge(ScheduleError):
    """A payload over the limit (ID-4)."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            "payload", f"{size} bytes are more than the {limit} allowed; store the data elsewhere and pass a reference"
        )
        self.size = size
        self.limit = limit


class UnsupportedCapability(ScheduleError):
    """The backend does not declare a required capability (CAP-1); names it, and those that it has."""

    def __init__(self, backend: str, asked: str, offered: str, *, field: str = "requires") -> None:
        super().__init__(
            field, f"{asked} was asked for, but the backend {backend!r} offers {offered}{_way_out(asked, offered)}"
        )
        self.backend = backend
        self.asked = asked
        self.offered = offered


def _way_out(asked: str, offered: str) -> str:
    if "precision SECOND" in asked:
        return "; make the backend with precision=Precision.SECOND, or add ?precision=second to its URL"
    if "DISTRIBUTED" in asked and "DURABLE" in offered:
        return "; DISTRIBUTED means nodes on several hosts, several processes of one host work with DURABLE alone"
    return ""


class UnsupportedPrecision(UnsupportedCapability):
    """A precision finer than the backend supports (CAP-2)."""

    def __init__(self, backend: str, asked: str, offered: str) -> None:
        super().__init__(backend, f"precision {asked}", f"precision {offered}", field="precision")


class JobNotFound(RotaError, LookupError):
    """No such job in this scope."""

    def __init__(self, job_id: str, scope_id: str) -> None:
        super().__init__(f"there is no job {job_id!r} in scope {scope_id!r}")
        self.job_id = job_id
        self.scope_id = scope_id


class RunNotFound(RotaError, LookupError):
    """No such run (or no such dead letter) in this scope."""

    def __init__(self, run_id: object, scope_id: str, was_there: bool = False) -> None:
        what = f"there is no such run {run_id} in scope {scope_id!r}"
        super().__init__(f"{what} any more: it has ended, and retention has deleted it" if was_there else what)
        self.run_id = run_id
        self.scope_id = scope_id


class LeaseLost(RotaError):
    """The lease belongs to another node now; writes of this holder are rejected (LEASE-1, LEASE-8)."""


class LockTaken(RotaError):
    """The named lock is held elsewhere (LEASE-8)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lock {name!r} is held by another node")
        self.name = name


class LaneFull(RotaError):
    """The job holds as many unfinished runs as it may (EVENT-4)."""

    def __init__(self, job_id: str, scope_id: str, limit: int) -> None:
        super().__init__(f"job {job_id!r} in scope {scope_id!r} already holds {limit} unfinished runs")
        self.job_id = job_id
        self.scope_id = scope_id
        self.limit = limit


class TriggersRefused(RotaError):
    """Some of many triggers were refused; the others are stored (MANUAL-1).

    `refused` gives the error by position: `JobNotFound`, `LaneFull`, `ScheduleError` (the job belongs to another
    handler), or an error of the store. `run_ids` are those of all triggers in their order, None for a refused one.
    """

    def __init__(self, refused: Mapping[int, RotaError], run_ids: Sequence[UUID | None]) -> None:
        first = min(refused)
        super().__init__(
            f"{len(refused)} of {len(run_ids)} triggers were refused, the others are stored; "
            f"the first is number {first}: {refused[first]}"
        )
        self.refused = dict(refused)
        self.run_ids = list(run_ids)


class StoreUnavailable(RotaError):
    """The store could not be reached: nothing happened, and the call may be repeated."""


class OutcomeUnknown(RotaError):
    """The call may or may not have happened (OPS-2); the error says how to find out.

    `run_id` is the id that the run has if it was stored, `job_id` and `scope_id` name its job, `key` is the idempotency
    key of the call. Each is None if the call had none.
    """

    def __init__(
        self,
        reason: str,
        *,
        run_id: UUID | None = None,
        job_id: str | None = None,
        scope_id: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.run_id = run_id
        self.job_id = job_id
        self.scope_id = scope_id
        self.key = key

    def __str__(self) -> str:
        return f"it is not known whether the call happened ({self.reason}); {self._way_out()}"

    def _way_out(self) -> str:
        scope = "" if self.scope_id is None else f", scope_id={self.scope_id!r}"
        if self.key is not None:
            return f"repeat it with the same key {self.key!r}: it will happen only once"
        if self.run_id is not None:
            look = f"get_run(UUID('{self.run_id}'){scope})"
            return f"{look} shows the run if it happened; a call with an idempotency key can be repeated safely"
        if self.job_id is not None:
            return f"status({self.job_id!r}{scope}) shows the state of the job; the same call may be repeated"
        return "check before you repeat it, or use an idempotency key"

    def about(
        self, *, scope_id: str, job_id: str | None = None, run_id: UUID | None = None, key: str | None = None
    ) -> OutcomeUnknown:
        """The same error with the details of the failed call."""
        return OutcomeUnknown(self.reason, run_id=run_id, job_id=job_id, scope_id=scope_id, key=key)


class SchemaMismatch(RotaError):
    """The database's schema does not match this version of Rota; says how to migrate it."""


class NotPermitted(RotaError):
    """The database role lacks a privilege; names it. Repeating the call would not help."""


class NotOpen(RotaError, RuntimeError):
    """A scheduler works only between entering and leaving it, and is entered once at a time."""


class NotSettled(RotaError):
    """Virtual time could not advance: some work neither ended nor waits on the clock (TIME-2)."""

    def __init__(self, waited: timedelta, names: list[str]) -> None:
        listed = ", ".join(names) or "unknown work"
        super().__init__(
            f"still busy after {waited.total_seconds():g} s of real time: {listed}; "
            "inside handlers wait with clock.sleep() or a clock.gate()"
        )
        self.names = names


class MissingExtra(RotaError, ImportError):
    """An optional part is not installed; the message contains the command that installs its packages."""

    def __init__(self, extra: str, purpose: str = "") -> None:
        what = f" ({purpose})" if purpose else ""
        parts = " ".join(f'"{each}"' for each in _requirements(extra))
        super().__init__(f"this needs the extra {extra!r}{what}: pip install {parts}")
        self.extra = extra


def _requirements(extra: str) -> list[str]:
    """The packages of an extra, as the installed distribution lists them."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires("rota") or []
    except PackageNotFoundError:  # run from its sources, uninstalled
        listed = []
    marked = [each.partition(";")[::2] for each in listed]
    ours = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [name.strip() for name, marker in marked if marker.strip() in ours] or [f"rota[{extra}]"]


class AccessDenied(RotaError, PermissionError):
    """The caller's roles do not allow it; nothing changed (ACCESS-1)."""

    def __init__(self, subject: str, action: str, scope_id: str) -> None:
        super().__init__(f"{subject!r} may not {action} in scope {scope_id!r}")
        self.subject = subject
        self.action = action
        self.scope_id = scope_id


class UndecodablePayload(RotaError):
    """A payload that is not of the handler's type; names path and type, never the value (ACCESS-2)."""


class InvalidHandler(ScheduleError):
    """A handler that cannot be registered; the reason names the way out. `field` is `handler` or `handler_name`."""


class ServiceNotFound(RotaError, LookupError):
    """No service is offered to handlers under that type or name.

    `offered` lists the existing services, and so does a traceback. The text does not: it is stored as the run's error,
    which tenants read (ID-2).
    """

    def __init__(self, wanted: str, offered: list[str]) -> None:
        super().__init__(f"there is no service {wanted}; offer it with Services.of({{…}})")
        self.add_note(f"services offered: {', '.join(offered) or 'none'}")
        self.wanted = wanted
        self.offered = offered


# --- errors of other code: how they are recorded and logged ---

MAX_ERROR = 8 * 1024  # bytes of UTF-8

_name_of_type: Any = type.__dict__["__name__"]  # a metaclass may override the attribute and raise
_module_of_type: Any = type.__dict__["__module__"]
_exact: Any = str.__str__  # turns a subclass of str into a plain str
_traceback_of: Any = BaseException.__dict__["__traceback__"]


def safe_text(value: object) -> str:
    """Text that every store can keep: at most 8 KiB, without NUL and lone surrogates. Never raises (LOG-2)."""
    try:
        text: str = _exact(value if issubclass(type(value), str) else str(value))
    except BaseException as error:
        text = f"<{type_name(value)}: its text raised {type_name(error)}>"
    data = text[:MAX_ERROR].replace("\x00", "\ufffd").encode("utf-8", "replace")[:MAX_ERROR]
    return data.decode("utf-8", "ignore")


def type_name(value: object) -> str:
    """The name of its class, even if the class overrides `__name__`."""
    return safe_text(_name_of_type.__get__(type(value)))


def error_text(error: BaseException) -> str:
    """An exception as it is recorded: `Type: text`, bounded. Never raises (RETRY-3, LOG-2)."""
    name, text = type_name(error), safe_text(error)
    return safe_text(f"{name}: {text}" if text else name)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Its traceback, even if the class overrides the attribute."""
    found: TracebackType | None = _traceback_of.__get__(error)
    return found


def without_text(error: BaseException) -> Exception:
    """An exception of the same name and traceback without text: for logs that must not contain foreign text (OPS-3)."""
    return stand_in(error, "")


def stand_in(error: BaseException, text: str) -> Exception:
    """An exception of the same name and traceback with this text, which can be printed (LOG-2)."""
    names = {"__module__": safe_text(_module_of_type.__get__(type(error)))}
    instead: Exception = type(type_name(error), (Exception,), names)(*([text] if text else []))
    return instead.with_traceback(traceback_of(error))
