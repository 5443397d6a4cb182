"""Values at the row boundary: instants as microseconds, ids as bytes, enums as the small numbers listed here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, SafeUUID

from rota.backend import Audience, FactKind
from rota.codec import from_dict, to_dict
from rota.model.run import AttemptOutcome, Cause, DecisionKind, RunState

# A row keeps the position in its tuple: only ever append.
CAUSES = (Cause.CRON, Cause.EVENT, Cause.MANUAL, Cause.REPLAY, Cause.BACKFILL)
OUTCOMES = (
    AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST,
    AttemptOutcome.CANCELLED,
)  # fmt: skip
FINALS = (RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED)
KINDS = (FactKind.REGISTERED, FactKind.TRIGGERED, FactKind.SUCCEEDED, FactKind.FAILED, FactKind.DEAD_LETTERED)
DECISIONS = (
    DecisionKind.SKIPPED, DecisionKind.COALESCED, DecisionKind.MISSED, DecisionKind.PAUSED, DecisionKind.SUPERSEDED,
    DecisionKind.REJECTED,
)  # fmt: skip
AUDIENCES = (Audience.EVENTS, Audience.ADMINS)
AUDIENCE_CODE = {each: code for code, each in enumerate(AUDIENCES)}
CAUSE_CODE = {each: code for code, each in enumerate(CAUSES)}
OUTCOME_CODE = {each: code for code, each in enumerate(OUTCOMES)}
FINAL_CODE = {each: code for code, each in enumerate(FINALS)}
KIND_CODE = {each: code for code, each in enumerate(KINDS)}
DECISION_CODE = {each: code for code, each in enumerate(DECISIONS)}

WAITING, DELAYED, RETRYING = range(3)  # states of an unfinished run
CRON_CODE, EVENT_CODE = CAUSE_CODE[Cause.CRON], CAUSE_CODE[Cause.EVENT]
DEAD_CODE, CANCELLED_CODE = FINAL_CODE[RunState.DEAD], FINAL_CODE[RunState.CANCELLED]
TRIGGERED_CODE = KIND_CODE[FactKind.TRIGGERED]
OF_REGISTRATION, OF_TRIGGER, OF_EVENT, OF_REPLAY = range(4)  # kinds of keys

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT = -62_135_596_800_000_000  # the beginning of the year 1
LAST_INSTANT = 253_402_300_799_999_999  # the end of the year 9999
_new, _set = object.__new__, object.__setattr__
_UNKNOWN = SafeUUID.unknown


def micros(instant: datetime) -> int:
    """An instant as it is stored."""
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def micros_or_none(instant: datetime | None) -> int | None:
    """The same, where there may be none."""
    return None if instant is None else micros(instant)


def span(delta: timedelta) -> int:
    """A duration as it is stored."""
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def instant(stored: int) -> datetime:
    """A stored instant, aware, in UTC."""
    return _EPOCH + timedelta(0, 0, stored)


def instant_or_none(stored: int | None) -> datetime | None:
    """The same, where there may be none."""
    return None if stored is None else _EPOCH + timedelta(0, 0, stored)


def uuid(stored: bytes) -> UUID:
    """A stored id. UUID's own constructor checks more than can be wrong here, at three times the cost."""
    if len(stored) != 16:
        raise ValueError
    found: UUID = _new(UUID)
    _set(found, "int", int.from_bytes(stored, "big"))
    _set(found, "is_safe", _UNKNOWN)
    return found


def uuid_of_hex(stored: str) -> UUID:
    """The same, from 32 hexadecimal digits."""
    found: UUID = _new(UUID)
    _set(found, "int", int(stored, 16))
    _set(found, "is_safe", _UNKNOWN)
    return found


def uuid_or_none(stored: bytes | None) -> UUID | None:
    """The same, where there may be none."""
    return None if stored is None else uuid(stored)


def uuids(stored: bytes) -> tuple[UUID, ...]:
    """Several, one after the other."""
    return tuple(uuid(stored[at : at + 16]) for at in range(0, len(stored), 16))


def dump(value: Any, kind: Any) -> str:
    """A value of the model as text."""
    return json.dumps(to_dict(value, kind), ensure_ascii=False, separators=(",", ":"))


def load(text: str, kind: Any) -> Any:
    """The counterpart of `dump`."""
    return from_dict(json.loads(text), kind)
