"""Occurrences: due instants, triggers and events. Each becomes a run in its lane, or a recorded refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rota.backend import (
    REPLAY_MEMORY,
    Bookmark,
    EventLimits,
    Fact,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    NewRun,
    Refusal,
)
from rota.decide.events import (
    NO_RUN,
    depth_error,
    event_answer,
    event_occurrence,
    event_run_id,
    is_about,
    rejection,
)
from rota.model.event import Event
from rota.model.run import Decision, DecisionKind
from rota.model.validation import LIFECYCLE_MODULE, PLATFORM_SCOPE
from rota_backends.sqlite import keys, settings
from rota_backends.sqlite.codes import (
    CAUSE_CODE,
    CRON_CODE,
    DEAD_CODE,
    DELAYED,
    EVENT_CODE,
    KIND_CODE,
    OF_EVENT,
    OF_REPLAY,
    OF_TRIGGER,
    WAITING,
    dump,
    micros,
    micros_or_none,
    span,
    uuid,
)
from rota_backends.sqlite.finishing import file_letter, unletter
from rota_backends.sqlite.jobs import remember
from rota_backends.sqlite.lane import Lane, first_start, offer, refresh
from rota_backends.sqlite.pending_calls import Peeked
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import UnreadableRow, key_of_lane

_RUN = """INSERT INTO rota_run (seq, lane, run_id, definition, payload, cause, state, queued_at, start_at, due, event,
    replay_of, covers_from, covers_to, missed_count, depth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_BURIED = """INSERT INTO rota_history (seq, lane, letter, run_id, definition, cause, state, queued_at, event,
    depth, missed_count, attempt, ended_at, error, reason) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)"""
_MATCHING = """SELECT s.lane, j.definition FROM rota_subscription s JOIN rota_job j ON j.id = s.lane
    WHERE s.source_module = ? AND s.event_type = ? AND s.subject IN ('', ?) AND s.scope_id IN (?, ?)
    AND j.definition IS NOT NULL ORDER BY s.lane"""


def _is_known(session: Session, run_id: bytes) -> bool:
    return session.one("SELECT 1 FROM rota_ident WHERE run_id = ?", (run_id,)) is not None


def _queue(
    session: Session,
    lane: Lane,
    run_id: bytes,
    definition: int,
    cause: int,
    *,
    payload: bytes | None = None,
    start_at: int | None = None,
    due: int | None = None,
    event: str | None = None,
    replay_of: bytes | None = None,
    covers: tuple[int | None, int | None] = (None, None),
    missed_count: int = 0,
    depth: int = 0,
) -> None:
    """Store the run at the tail of its lane, and offer the lane if nothing was in front of it."""
    now, seq = session.now, session.next_seq()
    session.db.execute(
        _RUN,
        (seq, lane.id, run_id, definition, payload, cause, WAITING if start_at is None else DELAYED, now, start_at, due,
         event, replay_of, *covers, missed_count, depth),
    )  # fmt: skip
    session.db.execute("INSERT INTO rota_ident VALUES (?, ?)", (run_id, seq))
    lane.unfinished += 1
    lane.is_counted = True
    if start_at is not None:
        lane.delayed += 1
        refresh(session, lane)
        session.has_news = True  # whoever sleeps may have to wake sooner
    elif lane.wake_at is not None and lane.wake_at <= now:
        refresh(session, lane)  # one that was delayed has come before: the lane is ready since then
        session.has_news = True
    elif lane.head is None:
        lane.head = seq
        lane.is_changed = True
        offer(session, lane, definition, now)
        session.has_news = True


# --- calls ---


def enqueue(session: Session, batch: Sequence[NewRun]) -> list[UUID | Refusal]:
    """Item by item: the run that stands for it, or why none does."""
    return [_enqueue(session, each) for each in batch]


def _enqueue(session: Session, new: NewRun) -> UUID | Refusal:
    lane, run_id = session.lane(new.key), new.run_id.bytes
    known = _standing_for(session, new, lane, run_id)
    if known is not None:
        return known
    assert lane is not None
    assert lane.definition is not None
    if lane.unfinished >= new.lane_limit:
        return Refusal.LANE_FULL
    payload, event, depth = new.payload, None, 0
    if new.idempotency_key is not None:
        keys.take(session, OF_TRIGGER, lane.id, new.idempotency_key.key, run_id, new.idempotency_key.ttl)
    if new.replay_of is not None:
        payload, event, depth = _take_over(session, new.replay_of.bytes, run_id)
    _queue(
        session, lane, run_id, lane.definition, CAUSE_CODE[new.cause], payload=payload, event=event,
        start_at=session.now + span(new.delay) if new.delay else None,
        replay_of=None if new.replay_of is None else new.replay_of.bytes, depth=max(depth, new.depth),
    )  # fmt: skip
    if new.replay_of is not None:
        keys.take(session, OF_REPLAY, 0, _letter_name(new, new.replay_of), run_id, REPLAY_MEMORY)
    return new.run_id


def _letter_name(new: NewRun, letter: UUID) -> str:
    return f"{new.key.scope_id}/{letter}"


def _standing_for(session: Session, new: NewRun, lane: Lane | None, run_id: bytes) -> UUID | Refusal | None:
    """The run that stands for this already: a repeat, a replayed letter, a taken key; or why none can."""
    holder = None
    if new.idempotency_key is not None and lane is not None:
        holder = keys.holder(session, OF_TRIGGER, lane.id, new.idempotency_key.key)
    if _is_known(session, run_id) or holder == run_id:
        return new.run_id  # whatever became of the run or its job since
    if new.replay_of is not None:
        replayed = keys.holder(session, OF_REPLAY, 0, _letter_name(new, new.replay_of))
        if replayed is not None:
            return uuid(replayed)
    if lane is None or lane.definition is None:
        return Refusal.NO_SUCH_JOB
    if holder is not None:
        return uuid(holder)
    if new.handler_names is not None and session.definition(lane.definition).handler_name not in new.handler_names:
        return Refusal.OTHER_HANDLER
    return None if new.replay_of is None else _replayed_by(session, lane, new.replay_of)


def _replayed_by(session: Session, lane: Lane, letter: UUID) -> UUID | Refusal | None:
    row = session.db.execute(
        """SELECT h.lane, h.state, h.letter, h.replayed_by FROM rota_ident i JOIN rota_history h ON h.seq = i.seq
           WHERE i.run_id = ?""",
        (letter.bytes,),
    ).fetchone()
    if row is None or row[:2] != (lane.id, DEAD_CODE) or (row[3] is None and not row[2]):
        return Refusal.NO_SUCH_RUN
    return None if row[3] is None else uuid(row[3])


def _take_over(session: Session, letter: bytes, run_id: bytes) -> tuple[bytes, str | None, int]:
    """Mark the letter as replayed; its payload, event and depth are the replay's."""
    seq, payload, event, depth, definition = session.db.execute(
        """SELECT h.seq, h.payload, h.event, h.depth, h.definition
           FROM rota_ident i JOIN rota_history h ON h.seq = i.seq WHERE i.run_id = ?""",
        (letter,),
    ).fetchone()
    session.db.execute("UPDATE rota_history SET replayed_by = ? WHERE seq = ?", (run_id, seq))
    unletter(session, seq)
    return session.definition(definition).payload if payload is None else payload, event, depth


# --- due instants ---


def fire(session: Session, batch: Sequence[Firing]) -> list[FireResult]:
    """Item by item, under the guards of revision and next_due."""
    return [_fire(session, each) for each in batch]


def _fire(session: Session, firing: Firing) -> FireResult:
    lane = session.lane(firing.key)
    if lane is None or lane.definition is None:
        return FireResult.STALE
    query = "SELECT revision, next_due FROM rota_job WHERE id = ?"
    revision, next_due = session.db.execute(query, (lane.id,)).fetchone()
    if revision != firing.revision or next_due != micros(firing.expected_due):
        return FireResult.STALE
    if firing.run_id is not None and lane.lease_until is not None and lane.lease_until <= session.now:
        return FireResult.BLOCKED
    remember(session, lane, firing.decisions)
    result = FireResult.DECIDED if firing.run_id is None else _fire_run(session, lane, firing, lane.definition)
    session.db.execute(
        "UPDATE rota_job SET decided = ?, next_due = ?, revision = revision + 1 WHERE id = ?",
        (micros(firing.decided), micros_or_none(firing.next_due), lane.id),
    )
    return result


def _fire_run(session: Session, lane: Lane, firing: Firing, definition: int) -> FireResult:
    assert firing.run_id is not None
    assert firing.due is not None
    if lane.delayed and first_start(session, lane) != lane.wake_at:
        refresh(session, lane)  # a delayed run has just come to stand in the way
    if lane.head is not None and (not firing.queues_behind or _one_waits(session, lane)):
        in_the_way = uuid(session.one("SELECT run_id FROM rota_run WHERE seq = ?", (lane.head,)))
        first = firing.first or firing.due
        remember(session, lane, (Decision(DecisionKind.SKIPPED, first, firing.due, firing.count, in_the_way),))
        return FireResult.SKIPPED
    covers = (None, None) if firing.covers is None else (micros(firing.covers[0]), micros(firing.covers[1]))
    _queue(
        session, lane, firing.run_id.bytes, definition, CRON_CODE, due=micros(firing.due), covers=covers,
        missed_count=firing.missed_count,
    )  # fmt: skip
    if firing.coalesced is not None:
        remember(session, lane, (firing.coalesced,))
    session.db.execute("UPDATE rota_job SET fired_since = 1 WHERE id = ?", (lane.id,))
    session.has_news = True
    return FireResult.FIRED


def _one_waits(session: Session, lane: Lane) -> bool:
    """Whether another occurrence waits behind the head already (CRON-8)."""
    behind = "SELECT 1 FROM rota_run WHERE lane = ? AND state = 0 AND seq != ? AND cause = ? LIMIT 1"
    return session.one(behind, (lane.id, lane.head, CRON_CODE)) is not None


# --- events ---


def matching(session: Session, event: Event) -> list[tuple[int, int]]:
    """Lanes and definitions of the jobs that wait for it; a lifecycle event never matches its own job (EVENT-6)."""
    scope = (event.subject or "", event.scope_id, PLATFORM_SCOPE)
    found: list[tuple[int, int]] = session.db.execute(
        _MATCHING, (event.source_module, event.event_type, *scope)
    ).fetchall()
    if event.source_module != LIFECYCLE_MODULE:
        return found
    return [each for each in found if not is_about(_key(session, *each), event)]


def _key(session: Session, lane_id: int, definition: int) -> JobKey:
    """Whose it is, also where the definition is missing: its run becomes a dead letter (SAFE-1)."""
    try:
        return session.key_of(definition)
    except UnreadableRow:
        return key_of_lane(session, lane_id)


def _are_heard(session: Session, events: Sequence[Event]) -> bool:
    kinds = {(event.source_module, event.event_type) for event in events}
    heard = "SELECT 1 FROM rota_subscription WHERE source_module = ? AND event_type = ? LIMIT 1"
    return any(session.one(heard, kind) is not None for kind in kinds)


def peek_notify(session: Session, events: Sequence[Event]) -> list[list[UUID | Refusal]] | Peeked:
    """Events that no job waits for need no write transaction."""
    if not _are_heard(session, events) or not any(matching(session, event) for event in events):
        return [[]] * len(events)
    return Peeked.NEEDS_WRITE


def notify(
    session: Session, events: Sequence[Event], limits: EventLimits, since: Bookmark | None
) -> list[list[UUID | Refusal]]:
    """Per event: a run for each job that waits for it; nothing where the bookmark has moved on (EVENT-5)."""
    if since is not None and settings.read(session, since.name) != since.position:
        return []
    if not _are_heard(session, events):
        return [[]] * len(events)
    return [[_notify(session, event, limits, *found) for found in matching(session, event)] for event in events]


def _notify(session: Session, event: Event, limits: EventLimits, lane_id: int, definition: int) -> UUID | Refusal:
    lane, key = session.lane_by_id(lane_id), _key(session, lane_id, definition)
    occurrence = event_occurrence(key, event)
    holder = keys.holder(session, OF_EVENT, lane_id, occurrence)
    if holder is not None:
        return event_answer(uuid(holder))
    run_id = event_run_id(key, occurrence)
    if _is_known(session, run_id.bytes):  # the event's memory ended before its run did
        return run_id
    too_deep = depth_error(event, limits)
    if too_deep is None and lane.unfinished >= limits.lane_limit:
        remember(session, lane, (rejection(event, session.time),))
        keys.take(session, OF_EVENT, lane_id, occurrence, NO_RUN.bytes, limits.memory)
        return Refusal.LANE_FULL
    keys.take(session, OF_EVENT, lane_id, occurrence, run_id.bytes, limits.memory)
    text = dump(event.as_event() if isinstance(event, Fact) else event, Event)
    if too_deep is not None:
        _bury(session, lane, run_id.bytes, definition, text, event.depth, too_deep)
    else:
        _queue(session, lane, run_id.bytes, definition, EVENT_CODE, event=text, depth=event.depth)
    session.has_news = True
    return run_id


def _bury(session: Session, lane: Lane, run_id: bytes, definition: int, event: str, depth: int, reason: str) -> None:
    """A run that is dead before it started (EVENT-6)."""
    now, seq = session.now, session.next_seq()
    row: tuple[Any, ...] = (seq, lane.id, run_id, definition, EVENT_CODE, DEAD_CODE, now, event, depth, now)
    session.db.execute(_BURIED, (*row, reason, reason))
    session.db.execute("INSERT INTO rota_ident VALUES (?, ?)", (run_id, seq))
    file_letter(session, seq)
    for kind in (FactKind.FAILED, FactKind.DEAD_LETTERED) if session.tells_facts else ():
        session.facts.append(
            (KIND_CODE[kind], now, lane.id, definition, uuid(run_id), 0, 0, EVENT_CODE, None, None, reason, None,
             None, depth + 1)
        )  # fmt: skip
