"""Work: claims, leases, settlements."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from rota.backend import (
    Claim,
    Claimed,
    ClaimRequest,
    LeaseRef,
    NodeInfo,
    Renewal,
)
from rota.event import Event
from rota_backends.sqlite import nodes
from rota_backends.sqlite.codes import (
    CAUSES,
    RETRYING,
    TRIGGERED_CODE,
    instant,
    instant_or_none,
    load,
    span,
    uuid,
)
from rota_backends.sqlite.endings import cancel_one
from rota_backends.sqlite.lane import COLUMNS, WIDTH, Lane, refresh
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.thread import Answer

EXPIRED_PAGE = 100
HEAD = "r.seq, r.run_id, r.definition, r.cause, r.due, r.depth, r.attempt, r.first_started_at, r.payload, r.event"
_LANES = f"SELECT {COLUMNS}, {HEAD} FROM rota_lane l JOIN rota_run r ON r.seq = l.head"
_READY = f"""{_LANES} WHERE l.ready_at IS NOT NULL AND l.rank = ? AND l.queue = ? AND l.handler = ?
    ORDER BY l.ready_at"""
_FIRST_KIND = """SELECT rank, queue, handler FROM rota_lane WHERE ready_at IS NOT NULL
    ORDER BY rank, queue, handler LIMIT 1"""
# With an instant past all others SQLite goes straight to the next kind; without it, it walks over every lane of this one.
_NEXT_KIND = """SELECT rank, queue, handler FROM rota_lane WHERE ready_at IS NOT NULL
    AND (rank, queue, handler, ready_at) > (?, ?, ?, 9223372036854775807)
    ORDER BY rank, queue, handler, ready_at LIMIT 1"""
_AWAKE = "SELECT id FROM rota_lane WHERE wake_at <= ?"
_HOLDERS = """SELECT node, lease_until FROM rota_lane WHERE lease_until IS NOT NULL AND node > ?
    ORDER BY node, lease_until LIMIT 1"""

Kind = tuple[int, str, str]


# --- claiming ---


def peek_claim(session: Session, request: ClaimRequest) -> Claimed | Answer:
    """Whether there is anything to claim; if not, that is the answer, and nothing was written."""
    if session.one(f"{_AWAKE} LIMIT 1", (session.now,)) is not None:
        return Answer.WRITE
    if request.limit > 0 and (_is_repeat(session, request) or next(_kinds(session, request), None) is not None):
        return Answer.WRITE
    return _answer(session, [])


def claim(session: Session, request: ClaimRequest) -> Claimed:
    """At most one run of each claimable lane."""
    awake = session.db.execute(_AWAKE, (session.now,)).fetchall()
    if awake:
        refresh(session, *[session.lane_by_id(lane_id) for (lane_id,) in awake])
    session.write_lanes()
    if request.number and _is_repeat(session, request):
        return _answer(session, _claimed_before(session, request))
    claims = _hand_over(session, request, _ready(session, request)) if request.limit > 0 else []
    if claims and request.number:
        row = (request.node_id, request.number, session.now)
        session.db.execute("INSERT OR REPLACE INTO rota_claim VALUES (?, ?, ?)", row)
    session.write_lanes()
    return _answer(session, claims)


def _is_repeat(session: Session, request: ClaimRequest) -> bool:
    return bool(session.one("SELECT number FROM rota_claim WHERE node = ?", (request.node_id,)) == request.number)


def _kinds(session: Session, request: ClaimRequest) -> Iterator[Kind]:
    """Rank, queue and handler of ready lanes this request may have; one probe each, however many lanes there are."""
    live: frozenset[str] | None = None
    kind: Kind | None = session.db.execute(_FIRST_KIND).fetchone()
    while kind is not None:
        is_served = kind[2] in request.handlers
        if not is_served:
            live = nodes.handlers(session) if live is None else live
            is_served = kind[2] not in live  # nobody has it: it is handed out to be dead-lettered (RETRY-4)
        if is_served and (request.queues is None or request.queues.get(kind[1], 0) > 0):
            yield kind
        kind = session.db.execute(_NEXT_KIND, kind).fetchone()


def _ready(session: Session, request: ClaimRequest) -> list[tuple[Any, ...]]:
    """Rows of lanes with their heads: by rank, then by who became ready first, within the slots of each queue."""
    found: list[tuple[Any, ...]] = []
    free = None if request.queues is None else dict(request.queues)
    kinds = list(_kinds(session, request))
    for rank in dict.fromkeys(kind[0] for kind in kinds):
        if len(found) >= request.limit:
            break
        of_rank = [kind for kind in kinds if kind[0] == rank]
        _pick(session, of_rank, request.limit, free, found)
    return found


def _pick(
    session: Session, kinds: list[Kind], limit: int, free: dict[str, int] | None, found: list[tuple[Any, ...]]
) -> None:
    if len(kinds) == 1:
        most = limit - len(found) if free is None else min(limit - len(found), free[kinds[0][1]])
        rows = session.db.execute(f"{_READY} LIMIT ?", (*kinds[0], most)).fetchall()
        found += rows
        if free is not None:
            free[kinds[0][1]] -= len(rows)
        return
    cursors = [session.db.execute(_READY, kind) for kind in kinds]
    for row in heapq.merge(*cursors, key=lambda row: row[4]):
        if free is not None:
            if free[row[2]] <= 0:
                continue
            free[row[2]] -= 1
        found.append(row)
        if len(found) >= limit:
            break
    for cursor in cursors:
        cursor.close()


def _hand_over(session: Session, request: ClaimRequest, rows: list[tuple[Any, ...]]) -> list[Claim]:
    now, until = session.now, session.now + span(request.lease)
    ends = instant(until)
    tells, facts, claims = session.tells_facts, session.facts, []
    for row in rows:
        lane, head = session.adopt(row[:WIDTH]), row[WIDTH:]
        lane.token += 1
        lane.lease_until = until
        lane.node = request.node_id
        lane.number = request.number
        lane.started_at = lane.last_attempt_at = now
        lane.pinned = 1
        lane.ready_at = lane.wake_at = None
        lane.is_changed = True
        session.claimed[lane.id, lane.token] = head
        if tells:
            _, run_id, definition, cause, due, depth, attempt, *_ = head
            facts.append(
                (TRIGGERED_CODE, now, lane.id, definition, run_id, attempt + 1, 0, cause, due, now, None, None, None,
                 depth + 1)
            )  # fmt: skip
        claims.append(_as_claim(session, lane, head, ends, lane.handler not in request.handlers))
    return claims


def _as_claim(
    session: Session, lane: Lane, head: tuple[Any, ...], ends: Any, handler_is_missing: bool = False
) -> Claim:
    _, run_id, number, cause, due, depth, attempt, first_started_at, payload, event = head
    assert lane.started_at is not None
    definition = session.definition(number)
    started_at = session.time if lane.started_at == session.now else instant(lane.started_at)
    return Claim(
        session.key_of(number), uuid(run_id), definition, definition.payload if payload is None else payload,
        CAUSES[cause], attempt + 1, lane.token, started_at,
        started_at if first_started_at is None else instant(first_started_at), ends, instant_or_none(due),
        None if event is None else load(event, Event), depth, lane.queue, lane.node or "", handler_is_missing,
    )  # fmt: skip


def _held(session: Session, where: str, parameters: tuple[Any, ...]) -> list[tuple[Lane, tuple[Any, ...]]]:
    rows = session.db.execute(f"{_LANES} WHERE l.lease_until IS NOT NULL AND {where}", parameters).fetchall()
    return [(session.adopt(row[:WIDTH]), row[WIDTH:]) for row in rows]


def _claims_of(session: Session, held: list[tuple[Lane, tuple[Any, ...]]], handlers: frozenset[str]) -> list[Claim]:
    return [
        _as_claim(session, lane, head, instant(lane.lease_until or 0), lane.handler not in handlers)
        for lane, head in held
    ]


def _claimed_before(session: Session, request: ClaimRequest) -> list[Claim]:
    held = _held(session, "l.node = ? AND l.number = ?", (request.node_id, request.number))
    return _claims_of(session, held, request.handlers)


def _answer(session: Session, claims: list[Claim]) -> Claimed:
    """With what has expired, and when more may be claimable."""
    expired: list[Claim] = []
    next_at: int | None = session.one("SELECT min(wake_at) FROM rota_lane WHERE wake_at IS NOT NULL")
    for node, lease_until in _holders(session):
        next_at = lease_until if next_at is None else min(next_at, lease_until)
        if lease_until <= session.now and len(expired) < EXPIRED_PAGE:
            where = "l.node = ? AND l.lease_until <= ? ORDER BY l.lease_until LIMIT ?"
            held = _held(session, where, (node, session.now, EXPIRED_PAGE - len(expired)))
            expired += [_as_claim(session, lane, head, instant(lane.lease_until or 0)) for lane, head in held]
    return Claimed(session.time, claims, expired, instant_or_none(next_at))


def _holders(session: Session) -> Iterator[tuple[str, int]]:
    """Who holds leases, and when the first of each ends."""
    row = session.db.execute(_HOLDERS, ("",)).fetchone()
    while row is not None:
        yield row
        row = session.db.execute(_HOLDERS, row[:1]).fetchone()


# --- holding ---


def holding(session: Session, ref: LeaseRef) -> Lane | None:
    """The lane, if it is leased with that token."""
    lane = session.lane(ref.key)
    return lane if lane is not None and lane.lease_until is not None and lane.token == ref.token else None


def renew(session: Session, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
    """The node is alive, and so are its leases, unless somebody else has them by now."""
    nodes.seen(session, node)
    renewal = Renewal(session.time, [], [], [])
    for ref in leases:
        lane = holding(session, ref)
        if lane is None or lane.node != node.node_id:
            renewal.lost.append(ref)
            continue
        lane.lease_until = max(lane.lease_until or 0, session.now + span(ref.lease))
        lane.is_changed = True
        if lane.stop is not None:
            renewal.stop.append((ref, lane.stop))
    listed = {(ref.key, ref.token) for ref in leases}
    for lane, head in _held(session, "l.node = ?", (node.node_id,)):
        key = session.key_of(head[2])
        if (key, lane.token) not in listed:
            renewal.strays.append(LeaseRef(key, uuid(head[1]), lane.token, node.lease))
    return renewal


def hand_back(session: Session, leases: Sequence[LeaseRef], leaving: str | None) -> None:
    """Undo the claims that still hold."""
    for ref in leases:
        lane = holding(session, ref)
        if lane is not None:
            _take_back(session, lane)
    if leaving is not None:
        nodes.gone(session, leaving)
    session.has_news = True


def _take_back(session: Session, lane: Lane) -> None:
    """Undo the claim; the run itself never heard of it."""
    assert lane.head is not None
    stop, removed = lane.stop, lane.removed
    session.claimed.pop((lane.id, lane.token), None)
    lane.free()
    if removed or stop is not None:
        cancel_one(session, lane, lane.head, stop or "unscheduled", None)
    else:
        state = session.one("SELECT state FROM rota_run WHERE seq = ?", (lane.head,))
        lane.pinned = int(state == RETRYING)
        if lane.pinned:
            session.db.execute("UPDATE rota_run SET start_at = ? WHERE seq = ?", (session.now, lane.head))
    refresh(session, lane)


def cancel(session: Session, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
    """At once where it holds no lease; else its node is told at its next renewal."""
    row = session.db.execute(
        """SELECT i.seq, r.lane, r.definition FROM rota_ident i LEFT JOIN rota_run r ON r.seq = i.seq
           WHERE i.run_id = ?""",
        (run_id.bytes,),
    ).fetchone()
    if row is None:
        return False
    seq, lane_id, definition = row
    if lane_id is None:
        return _was_cancelled_by(session, seq, scope_id, request_id)
    if session.key_of(definition).scope_id != scope_id:
        return False
    lane = session.lane_by_id(lane_id)
    if lane.head == seq and lane.lease_until is not None:
        lane.stop = lane.stop or reason
        lane.is_changed = True
        session.db.execute("UPDATE rota_run SET ended_by = ? WHERE seq = ?", (request_id.bytes, seq))
        return True
    cancel_one(session, lane, seq, reason, request_id.bytes)
    refresh(session, lane)
    session.has_news = True
    return True


def _was_cancelled_by(session: Session, seq: int, scope_id: str, request_id: UUID) -> bool:
    query = "SELECT ended_by, definition FROM rota_history WHERE seq = ?"
    ended_by, definition = session.db.execute(query, (seq,)).fetchone()
    return bool(ended_by == request_id.bytes and session.key_of(definition).scope_id == scope_id)
