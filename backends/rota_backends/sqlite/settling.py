"""Settlements: a batch is judged item by item, and written a kind of statement at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from rota.backend import Claimed, ClaimRequest, FactKind, Settlement
from rota.codec import to_dict
from rota.model.run import Attempt, AttemptOutcome, RunState
from rota_backends.sqlite.claiming import claim
from rota_backends.sqlite.codes import (
    CAUSES,
    DEAD_CODE,
    FINAL_CODE,
    KIND_CODE,
    OUTCOME_CODE,
    RETRYING,
    instant,
    instant_or_none,
    span,
    uuid,
)
from rota_backends.sqlite.finishing import Ending, finish, forget_oldest
from rota_backends.sqlite.lane import HEAD, Head, Lane, refresh
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, salvaged, whole

_HEAD = f"SELECT {HEAD} FROM rota_run r WHERE r.seq = ?"
_RETRIED = """UPDATE rota_run SET state = ?, start_at = ?, attempt = ?,
    first_started_at = coalesce(first_started_at, ?), attempts = ?, error = ?, records = ? WHERE seq = ?"""
_NOTHING: tuple[int, Head, UUID] = (-1, (), UUID(int=0))
_SUCCEEDED = """UPDATE rota_lane SET head = {head}, ready_at = ?, wake_at = NULL, pinned = 0, lease_until = NULL,
    node = NULL, started_at = NULL, stop = NULL, removed = 0, settled_token = token, settled_node = ?,
    unfinished = unfinished - 1, kept = kept + 1, last_success_at = ? WHERE id IN (SELECT value FROM json_each(?))"""
_IDLE = _SUCCEEDED.format(head="NULL")
_READY = _SUCCEEDED.format(head="(SELECT min(w.seq) FROM rota_run w WHERE w.lane = rota_lane.id AND w.state = 0)")


def _checked(head: Head) -> Head:
    """Raises where a fact could not be made of it."""
    uuid(head[1])
    CAUSES[head[3]]
    instant_or_none(head[4])
    whole(head[5])
    whole(head[6])
    return head


def settle(
    session: Session, batch: Sequence[Settlement], then: ClaimRequest | None, keep: int | None
) -> tuple[list[bool], Claimed | None]:
    """Item by item: True is stored (or was), False is refused. Then claim, in the same transaction."""
    session.load_lanes([each.key for each in batch])
    settling = Settling(session)
    settled = [settling.take(each) for each in batch]
    settling.write(keep)
    return settled, None if then is None else claim(session, then)


class Settling:
    """One batch on its way."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tells = session.tells_facts
        self._freed: list[Lane] = []
        self._ended: dict[tuple[int, Ending], list[int]] = {}
        self._plain: dict[str, list[tuple[Lane, str]]] = {}  # by node: succeeded, with the handler it had

    def take(self, new: Settlement) -> bool:
        """Judge one: False is refused, and nothing of it is written."""
        session = self._session
        lane = session.lane(new.key)
        if lane is None:
            return False
        if lane.lease_until is None or lane.token != new.token:
            return lane.settled_token == new.token and lane.settled_node == new.node_id
        if new.only_if_expired and lane.lease_until > session.now:
            return False
        self._settle(lane, *self._claimed(lane), new)
        return True

    def _claimed(self, lane: Lane) -> tuple[Head, UUID]:
        token, head, run_id = self._session.claimed.pop(lane.id, _NOTHING)
        if token != lane.token:  # another process claimed it, or this one before it was started anew
            head = self._stored_head(lane)
            run_id = uuid(head[1])
        return head, run_id

    def _stored_head(self, lane: Lane) -> Head:
        head: Head = self._session.db.execute(_HEAD, (lane.head,)).fetchone()
        try:
            return _checked(head)
        except DAMAGE:
            return salvaged(self._session, head, [])

    def _settle(self, lane: Lane, head: Head, run_id: UUID, new: Settlement) -> None:
        now = self._session.now
        state, facts, reason = new.state, new.facts, new.reason
        if state is RunState.SUCCEEDED:
            lane.last_success_at = now
            if not (lane.is_changed or lane.is_counted):
                self._plain.setdefault(new.node_id, []).append((lane, lane.handler))
        else:
            state, facts, reason = new.overruled(lane.stop, bool(lane.removed))
            if new.outcome is not AttemptOutcome.CANCELLED:
                lane.last_failure_at = now
        start_at = None
        if state is RunState.RETRYING:
            start_at = now + (0 if new.wait is None else span(new.wait))
            self._retry(lane, head, new, start_at)
        else:
            self._end(lane, head, new, FINAL_CODE[state], reason)
        if facts:
            self._tell(lane, head, run_id, new, facts, start_at)
        lane.settled_token, lane.settled_node = new.token, new.node_id
        lane.free()
        self._freed.append(lane)

    def _write_plain(self, node: str, lanes: list[tuple[Lane, str]]) -> None:
        """Lanes that only have the next run for their head now, or none: one statement for all of them."""
        now, idle, ready = self._session.now, [], []
        for lane, handler in lanes:
            if lane.unfinished == 0:
                idle.append(lane)
            elif lane.ready_at == now and lane.handler == handler and not lane.delayed:
                ready.append(lane)
        for statement, since, those in ((_IDLE, None, idle), (_READY, now, ready)):
            if those:
                self._session.db.execute(statement, (since, node, now, str([lane.id for lane in those])))
                for lane in those:
                    lane.is_changed = False

    def _retry(self, lane: Lane, head: Head, new: Settlement, start_at: int) -> None:
        seq, attempt = head[0], head[6] + 1
        lane.run = None
        attempts = self._with_this(lane, seq, attempt, new)
        self._session.db.execute(
            _RETRIED,
            (RETRYING, start_at, attempt, lane.started_at, attempts, new.error, new.records_processed, seq),
        )

    def _with_this(self, lane: Lane, seq: int, number: int, new: Settlement) -> str:
        """The attempts so far and this one, as text."""
        assert lane.started_at is not None
        before = self._session.one("SELECT attempts FROM rota_run WHERE seq = ?", (seq,))
        try:
            attempts = [] if before is None else [*json.loads(before)]
        except DAMAGE:
            attempts = []  # only the record of them is lost (SAFE-1)
        this = Attempt(
            number, instant(lane.started_at), self._session.time, new.outcome, new.error, lane.node or "", new.token
        )
        return json.dumps([*attempts, to_dict(this, Attempt)], ensure_ascii=False, separators=(",", ":"))

    def _end(self, lane: Lane, head: Head, new: Settlement, state: int, reason: str | None) -> None:
        how = (OUTCOME_CODE[new.outcome], new.error, reason, new.records_processed)
        self._ended.setdefault((state, how), []).append(head[0])
        lane.unfinished -= 1
        lane.head, lane.pinned = None, 0
        lane.kept += state != DEAD_CODE

    def _tell(
        self,
        lane: Lane,
        head: Head,
        run_id: UUID,
        new: Settlement,
        facts: tuple[FactKind, ...],
        next_at: int | None,
    ) -> None:
        _, _, definition, cause, due, depth, attempt, *_ = head
        for kind in facts if self._tells else ():
            self._session.facts.append(
                (KIND_CODE[kind], self._session.now, lane.id, definition, run_id, attempt + 1, 0, cause, due,
                 lane.started_at, new.error, next_at, new.records_processed, depth + 1)
            )  # fmt: skip

    def write(self, keep: int | None) -> None:
        session = self._session
        for (state, how), runs in self._ended.items():
            finish(session, state, how, runs)
        refresh(session, *self._freed)
        for node, lanes in self._plain.items():
            self._write_plain(node, lanes)
        for lane in self._freed:
            # a quarter beyond what is kept, so that forgetting is done for many at once
            if keep is not None and lane.kept > keep + keep // 4:
                forget_oldest(session, lane, keep, lane.kept)
        session.write_lanes()
