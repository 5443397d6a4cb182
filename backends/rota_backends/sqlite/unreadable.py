"""Stored rows that cannot be decoded: each costs its own run or job, and nothing else stops for it (SAFE-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from rota.backend import JobKey
from rota.errors import RotaError
from rota.model.definition import JobDefinition, Manual
from rota.model.event import Event
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota.model.validation import DEFAULT_SCOPE, check_name
from rota_backends.sqlite.codes import CAUSE_CODE, CAUSES, instant_or_none, load, uuid

if TYPE_CHECKING:
    from rota_backends.sqlite.session import Session

# Raised while a damaged value is decoded. The first two include the ScheduleErrors of the codec.
DAMAGE = (ValueError, LookupError, TypeError, OverflowError, AssertionError, RecursionError)


_NO_DEFINITION = 0  # no definition ever has this number


class UnreadableRow(RotaError, ValueError):
    """A stored row that cannot be decoded; the text says what is wrong, never the stored value."""


def why(error: BaseException) -> str:
    """What is wrong, without the stored value: it may be secret (ACCESS-2)."""
    if isinstance(error, RotaError):
        return str(error)
    return (
        "is not JSON" if isinstance(error, JSONDecodeError) else f"has a wrong type or value ({type(error).__name__})"
    )


def whole(stored: object) -> int:
    """A stored whole number."""
    if not isinstance(stored, int):
        raise TypeError
    return stored


def whole_or_none(stored: object) -> int | None:
    """The same, where there may be none."""
    return None if stored is None else whole(stored)


def counted(stored: object) -> int:
    """A stored number of things."""
    if whole(stored) < 0:
        raise ValueError
    return whole(stored)


def bytes_or_none(stored: object) -> bytes | None:
    """A stored payload, where there may be none."""
    if stored is not None and not isinstance(stored, bytes):
        raise TypeError
    return stored


def salvaged(session: Session, head: Sequence[Any], problems: list[str]) -> tuple[Any, ...]:
    """The columns of a run with harmless values in place of the unreadable ones, whose problems are listed."""

    def read(name: str, value: Any, decode: Callable[[Any], object], instead: Any) -> Any:
        try:
            decode(value)
        except DAMAGE as error:
            problems.append(f"{name} {why(error)}")
            return instead
        return value

    seq, run_id, definition, cause, due, depth, attempt, first_started_at, payload, event = head
    read("definition", definition, session.definition, None)
    return (
        seq,
        read("run_id", run_id, uuid, None) or _renamed(session, seq),
        definition if isinstance(definition, int) else _without_definition(session, seq),
        read("cause", cause, CAUSES.__getitem__, CAUSE_CODE[Cause.MANUAL]),
        read("due", due, instant_or_none, None),
        read("depth", depth, whole, 0),
        read("attempt", attempt, whole, 0),
        read("first_started_at", first_started_at, instant_or_none, None),
        read("payload", payload, bytes_or_none, b""),
        read("event", event, _event_or_none, None),
    )


def _event_or_none(stored: str | None) -> object:
    return None if stored is None else load(stored, Event)


def _renamed(session: Session, seq: int) -> bytes:
    """Give the run another id, so that its dead letter can be found and discarded."""
    run_id = new_run_id().bytes
    session.db.execute("UPDATE rota_run SET run_id = ? WHERE seq = ?", (run_id, seq))
    session.db.execute("INSERT INTO rota_ident VALUES (?, ?)", (run_id, seq))
    return run_id


def _without_definition(session: Session, seq: int) -> int:
    """Give the run a number in place of what is none: its settlement and its facts refer to it."""
    session.db.execute("UPDATE rota_run SET definition = ? WHERE seq = ?", (_NO_DEFINITION, seq))
    return _NO_DEFINITION


def key_of_lane(session: Session, lane_id: int) -> JobKey:
    """The job's name as its own row has it."""
    row = session.db.execute("SELECT scope_id, job_id FROM rota_job WHERE id = ?", (lane_id,)).fetchone()
    if row is None:
        raise LookupError  # repair.py adds the row
    return JobKey(*row)


def handler_of_lane(session: Session, lane_id: int) -> str:
    """The handler of the job's newest definition, which stands beside it; for runs whose own cannot be read."""
    return str(session.one("SELECT handler FROM rota_job WHERE id = ?", (lane_id,)))


def partial_definition(session: Session, lane_id: int) -> JobDefinition:
    """As much of a job as its own row tells: its name and its handler."""
    scope_id, job_id = key_of_lane(session, lane_id)
    handler = handler_of_lane(session, lane_id)
    return JobDefinition(
        _name_or(job_id, "unreadable"), _name_or(handler, "unreadable"), Manual(),
        scope_id=_name_or(scope_id, DEFAULT_SCOPE),
    )  # fmt: skip


def _name_or(stored: object, instead: str) -> str:
    try:
        return check_name("name", stored)
    except RotaError:
        return instead
