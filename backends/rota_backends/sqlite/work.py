"""Holding a claim: renewals, hand-backs, requests to stop."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.backend import LeaseRef, NodeInfo, Renewal
from rota_backends.sqlite import nodes
from rota_backends.sqlite.claiming import held
from rota_backends.sqlite.codes import RETRYING, span
from rota_backends.sqlite.finishing import cancel_one
from rota_backends.sqlite.lane import Lane, refresh
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import key_of_lane


def holding(session: Session, ref: LeaseRef) -> Lane | None:
    """The lane, if it is leased with that token."""
    lane = session.lane(ref.key)
    return lane if lane is not None and lane.lease_until is not None and lane.token == ref.token else None


def renew(session: Session, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
    """Renew the node and those of its leases that no other node has taken over."""
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
    for claim in held(session, "l.node = ?", (node.node_id,), None):
        if (claim.key, claim.token) not in listed:
            renewal.orphans.append(LeaseRef(claim.key, claim.run_id, claim.token, node.lease))
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
    """Undo the claim: the attempt is not counted."""
    assert lane.head is not None
    stop, removed = lane.stop, lane.removed
    session.claimed.pop(lane.id, None)
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
    """Cancel a run without a lease at once; the node of a leased run is told at its next renewal."""
    row = session.db.execute(
        """SELECT i.seq, r.lane FROM rota_ident i LEFT JOIN rota_run r ON r.seq = i.seq
           WHERE i.run_id = ?""",
        (run_id.bytes,),
    ).fetchone()
    if row is None:
        return False
    seq, lane_id = row
    if lane_id is None:
        return _was_cancelled_by(session, seq, scope_id, request_id)
    if key_of_lane(session, lane_id).scope_id != scope_id:
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
    query = "SELECT ended_by, lane FROM rota_history WHERE seq = ?"
    ended_by, lane_id = session.db.execute(query, (seq,)).fetchone()
    return bool(ended_by == request_id.bytes and key_of_lane(session, lane_id).scope_id == scope_id)
