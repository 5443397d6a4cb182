"""Claims: at most one run of each claimable lane, many lanes at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rota.backend import Claim, Claimed, ClaimRequest, JobKey
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota_backends.sqlite import nodes
from rota_backends.sqlite.codes import CAUSES, TRIGGERED_CODE, instant, instant_or_none, load, span, uuid
from rota_backends.sqlite.lane import COLUMNS, HEAD, NAMES, Head, Lane, refresh
from rota_backends.sqlite.pending_calls import Peeked
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, key_of_lane, partial_definition, salvaged

EXPIRED_PAGE = 100
_HELD = f"""SELECT {COLUMNS}, {HEAD} FROM rota_lane l JOIN rota_run r ON r.seq = l.head
    WHERE l.lease_until IS NOT NULL AND """
_READY = """SELECT ready_at, id, queue FROM rota_lane WHERE ready_at IS NOT NULL AND rank = ? AND queue = ?
    AND handler = ? ORDER BY ready_at"""
_CLAIMED = """UPDATE rota_lane SET token = token + 1, lease_until = ?, node = ?, number = ?, started_at = ?,
    last_attempt_at = ?, pinned = 1, ready_at = NULL, wake_at = NULL WHERE id IN (SELECT value FROM json_each(?))"""
_FIRST_KIND = """SELECT rank, queue, handler FROM rota_lane WHERE ready_at IS NOT NULL
    ORDER BY rank, queue, handler LIMIT 1"""
# An instant past all others takes SQLite straight to the next kind; without it, it walks over every lane of this one.
_NEXT_KIND = """SELECT rank, queue, handler FROM rota_lane WHERE ready_at IS NOT NULL
    AND (rank, queue, handler, ready_at) > (?, ?, ?, 9223372036854775807)
    ORDER BY rank, queue, handler, ready_at LIMIT 1"""
_AWAKE = "SELECT 1 FROM rota_lane WHERE wake_at <= ? LIMIT 1"
# The most important first: where more have come than are woken in one go, those are in the line when it is read.
_WOKEN = "SELECT id FROM rota_lane WHERE wake_at <= ? ORDER BY rank, wake_at LIMIT ?"
_WOKEN_AT_ONCE = 1000  # after an outage thousands may be due, and other calls wait meanwhile
_HOLDERS = """SELECT node, lease_until FROM rota_lane WHERE lease_until IS NOT NULL AND node > ?
    ORDER BY node, lease_until LIMIT 1"""

Kind = tuple[int, str, str]
Row = tuple[Any, ...]


def peek_claim(session: Session, request: ClaimRequest) -> Claimed | Peeked:
    """Answer from a snapshot where nothing can be claimed."""
    if session.one(_AWAKE, (session.now,)) is not None:
        return Peeked.NEEDS_WRITE
    if request.limit > 0 and (_is_repeat(session, request) or next(_kinds(session, request), None) is not None):
        return Peeked.NEEDS_WRITE
    return _answer(session, [])


def claim(session: Session, request: ClaimRequest) -> Claimed:
    """At most one run of each claimable lane."""
    woken = max(_WOKEN_AT_ONCE, request.limit)
    awake = session.db.execute(_WOKEN, (session.now, woken)).fetchall()
    if awake:
        refresh(session, *[session.lane_by_id(lane_id) for (lane_id,) in awake])
    session.write_lanes()
    if request.number and _is_repeat(session, request):
        before = held(session, "l.node = ? AND l.number = ?", (request.node_id, request.number), request.handlers)
        return _answer(session, before)
    ready = _ready(session, request) if request.limit > 0 else []
    if not ready:
        return _answer(session, [])
    claims = _hand_over(session, request, session.lanes_with_heads(ready))
    if request.number:
        made = (request.node_id, request.number, session.now)
        session.db.execute("INSERT OR REPLACE INTO rota_claim VALUES (?, ?, ?)", made)
    return _answer(session, claims)


def _is_repeat(session: Session, request: ClaimRequest) -> bool:
    return bool(session.one("SELECT number FROM rota_claim WHERE node = ?", (request.node_id,)) == request.number)


def _kinds(session: Session, request: ClaimRequest) -> Iterator[Kind]:
    """Rank, queue and handler of ready lanes this request may have; one probe each, however many lanes there are."""
    served: frozenset[str] | None = None
    kind: Kind | None = session.db.execute(_FIRST_KIND).fetchone()
    while kind is not None:
        is_served = kind[2] in request.handlers
        if not is_served:
            served = nodes.served(session, request.node_id) if served is None else served
            is_served = kind[2] not in served  # nobody has it: it is handed out to be dead-lettered (RETRY-4)
        if is_served and (request.queues is None or request.queues.get(kind[1], 0) > 0):
            yield kind
        following = session.db.execute(_NEXT_KIND, kind).fetchone()
        if following == kind:
            raise ValueError("ready_at of a lane is no number, and sorts behind all numbers")  # repaired by the thread
        kind = following


def _ready(session: Session, request: ClaimRequest) -> list[int]:
    """Lanes: by rank, then by who became ready first, within the slots of each queue."""
    found: list[int] = []
    free = None if request.queues is None else dict(request.queues)
    kinds = list(_kinds(session, request))
    for rank in dict.fromkeys(kind[0] for kind in kinds):
        if len(found) >= request.limit:
            break
        _pick(session, [kind for kind in kinds if kind[0] == rank], request.limit, free, found)
    return found


def _pick(session: Session, kinds: list[Kind], limit: int, free: dict[str, int] | None, found: list[int]) -> None:
    """Of one rank; the kinds are merged row by row, so that no more is read than is taken."""
    if len(kinds) == 1 and free is None:
        ready = session.db.execute(f"{_READY} LIMIT ?", (*kinds[0], limit - len(found)))
        found += [lane for _, lane, _ in ready.fetchall()]
        return
    cursors = [session.db.execute(_READY, kind) for kind in kinds]
    for _, lane, queue in heapq.merge(*cursors):
        if free is not None:
            if free[queue] <= 0:
                continue
            free[queue] -= 1
        found.append(lane)
        if len(found) >= limit:
            break
    for cursor in cursors:
        cursor.close()


def _hand_over(session: Session, request: ClaimRequest, lanes: list[Lane]) -> list[Claim]:
    now, node, until = session.now, request.node_id, session.now + span(request.lease)
    session.db.execute(_CLAIMED, (until, node, request.number, now, now, str([lane.id for lane in lanes])))
    heads = [lane.run for lane in lanes if lane.run is not None]
    session.definitions({head[2] for head in heads})
    ends, claims, tells = instant(until), [], session.tells_facts
    for lane, head in zip(lanes, heads, strict=True):
        lane.take(until, node, request.number, now)
        try:
            made = _as_claim(session, lane, head, session.time, ends, lane.handler not in request.handlers)
        except DAMAGE:
            made, head = _salvaged_claim(session, lane, head, session.time, ends)
            lane.run = head
        session.claimed[lane.id] = lane.token, head, made.run_id
        session.remember_id(made.key, lane.id)
        claims.append(made)
        if tells:
            session.facts.append(
                (TRIGGERED_CODE, now, lane.id, head[2], made.run_id, made.attempt, 0, head[3], head[4], now, None,
                 None, None, made.depth + 1)
            )  # fmt: skip
    return claims


def _as_claim(
    session: Session, lane: Lane, head: Head, started_at: datetime, ends: datetime, handler_is_missing: bool
) -> Claim:
    definition = session.definition(head[2])
    return _claim_of(session.key_of(head[2]), definition, lane, head, started_at, ends, handler_is_missing)


def _claim_of(
    key: JobKey,
    definition: JobDefinition,
    lane: Lane,
    head: Head,
    started_at: datetime,
    ends: datetime,
    handler_is_missing: bool,
) -> Claim:
    _, run_id, _, cause, due, depth, attempt, first_started_at, payload, event = head
    if payload.__class__ is not bytes and payload is not None:
        raise TypeError
    return Claim(
        key, uuid(run_id), definition, definition.payload if payload is None else payload,
        CAUSES[cause], attempt + 1, lane.token, started_at,
        started_at if first_started_at is None else instant(first_started_at), ends,
        None if due is None else instant(due), None if event is None else load(event, Event), depth + 0, lane.queue,
        lane.node or "", handler_is_missing,
    )  # fmt: skip


def _salvaged_claim(
    session: Session, lane: Lane, head: Head, started_at: datetime, ends: datetime
) -> tuple[Claim, Head]:
    """A claim of a run that cannot be decoded, and its columns as far as they can be: to be dead-lettered (SAFE-1)."""
    problems: list[str] = []
    head = salvaged(session, head, problems)
    key, definition = key_of_lane(session, lane.id), _definition_or_part(session, lane, head)
    claim = _claim_of(key, definition, lane, head, started_at, ends, False)
    claim.unreadable = f"the stored run cannot be read: {'; '.join(problems)}"
    return claim, head


def _definition_or_part(session: Session, lane: Lane, head: Head) -> JobDefinition:
    try:
        return session.definition(head[2])
    except DAMAGE:
        return partial_definition(session, lane.id)


def held(session: Session, where: str, parameters: Row, handlers: frozenset[str] | None) -> list[Claim]:
    """Claims that were made before and still hold."""
    return [
        _as_held(session, session.adopt(row), row[len(NAMES) :], handlers)
        for row in session.db.execute(_HELD + where, parameters).fetchall()
    ]


def _as_held(session: Session, lane: Lane, head: Head, handlers: frozenset[str] | None) -> Claim:
    assert lane.started_at is not None
    assert lane.lease_until is not None
    is_missing = handlers is not None and lane.handler not in handlers
    started_at, ends = instant(lane.started_at), instant(lane.lease_until)
    try:
        return _as_claim(session, lane, head, started_at, ends, is_missing)
    except DAMAGE:
        return _salvaged_claim(session, lane, head, started_at, ends)[0]


def _answer(session: Session, claims: list[Claim]) -> Claimed:
    """With what has expired, and when more may be claimable."""
    expired: list[Claim] = []
    next_at: int | None = session.one("SELECT min(wake_at) FROM rota_lane WHERE wake_at IS NOT NULL")
    for node, lease_until in _holders(session):
        next_at = lease_until if next_at is None else min(next_at, lease_until)
        if lease_until <= session.now and len(expired) < EXPIRED_PAGE:
            where = "l.node = ? AND l.lease_until <= ? ORDER BY l.lease_until LIMIT ?"
            expired += held(session, where, (node, session.now, EXPIRED_PAGE - len(expired)), None)
    return Claimed(session.time, claims, expired, instant_or_none(next_at))


def _holders(session: Session) -> Iterator[tuple[str, int]]:
    """Who holds leases, and when the first of each ends."""
    row = session.db.execute(_HOLDERS, ("",)).fetchone()
    while row is not None:
        yield row
        row = session.db.execute(_HOLDERS, row[:1]).fetchone()
