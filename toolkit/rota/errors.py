"""Every error Rota raises. Each says which value is wrong and, where there is one, the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

_QUOTED = 100  # characters of a value that an error text repeats


class RotaError(Exception):
    """The base of everything Rota raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take other arguments than the message: pickling must not call them with it.
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
    """Something the backend does not declare (CAP-1); names what was asked for and what there is."""

    def __init__(self, backend: str, asked: str, offered: str, *, field: str = "requires") -> None:
        super().__init__(field, f"{asked} was asked for, but the backend {backend!r} offers {offered}")
        self.backend = backend
        self.asked = asked
        self.offered = offered


class UnsupportedPrecision(UnsupportedCapability):
    """A precision finer than the backend honours (CAP-2)."""

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
        super().__init__(f"{what} any more: it has ended, and retention has forgotten it" if was_there else what)
        self.run_id = run_id
        self.scope_id = scope_id


class LeaseLost(RotaError):
    """The lease belongs to another node now; what this holder says is refused (LEASE-1, LEASE-8)."""


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

    `refused` says why, by position: `JobNotFound`, `LaneFull`, or the store's own trouble. `run_ids` are those of all
    triggers in their order, None where one was refused.
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
    """The store did not take the call: nothing happened, and the call may be repeated."""


class OutcomeUnknown(RotaError):
    """The call may or may not have happened (OPS-2); repeat it with an idempotency key, or look first."""


class NotOpen(RotaError, RuntimeError):
    """A scheduler works only between entering and leaving it, and is entered once at a time."""


class NotSettled(RotaError):
    """Virtual time could not go on: something neither ended nor waits on the clock (TIME-2)."""

    def __init__(self, waited: timedelta, names: list[str]) -> None:
        listed = ", ".join(names) or "unknown work"
        super().__init__(
            f"still busy after {waited.total_seconds():g} s of real time: {listed}; "
            "inside handlers wait with clock.sleep() or a clock.gate()"
        )
        self.names = names


class MissingExtra(RotaError, ImportError):
    """An optional part is not installed; the message has the command that installs what it consists of."""

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
    """Nothing is offered to handlers under that type or name; lists what is."""

    def __init__(self, wanted: str, offered: list[str]) -> None:
        listed = ", ".join(offered) or "none at all"
        super().__init__(f"there is no service {wanted}; there are: {listed}. Offer it with Services.of({{…}})")
        self.wanted = wanted
        self.offered = offered


def without_text(error: BaseException) -> Exception:
    """What a log may have of an error of others: its kind and its way. Its text may quote a payload or a password
    (OPS-3)."""
    kind = type(error)
    textless = type(kind.__name__, (Exception,), {"__module__": kind.__module__})
    bare: Exception = textless()
    return bare.with_traceback(error.__traceback__)
