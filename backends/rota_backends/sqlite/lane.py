"""The lane's row in memory, for the length of one transaction; and where its head comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rota_backends.sqlite.codes import DELAYED, WAITING
from rota_backends.sqlite.unreadable import DAMAGE, handler_of_lane, whole_or_none

if TYPE_CHECKING:
    from rota_backends.sqlite.session import Session

_HOT = (
    "rank", "queue", "handler", "ready_at", "wake_at", "head", "pinned", "lease_until", "token", "node", "number",
    "started_at", "stop", "removed", "settled_token", "settled_node", "unfinished", "delayed", "kept", "definition",
    "paused", "last_attempt_at", "last_success_at", "last_failure_at",
)  # fmt: skip
NAMES = ("id", *_HOT)
HEAD = "r.seq, r.run_id, r.definition, r.cause, r.due, r.depth, r.attempt, r.first_started_at, r.payload, r.event"
COLUMNS = ", ".join(f"l.{name}" for name in NAMES)
BY_ID = f"SELECT {COLUMNS} FROM rota_lane l WHERE l.id = ?"
BY_KEY = f"SELECT {COLUMNS} FROM rota_job j JOIN rota_lane l ON l.id = j.id WHERE j.scope_id = ? AND j.job_id = ?"
UPDATE = f"UPDATE rota_lane SET {', '.join(f'{name} = ?' for name in _HOT)} WHERE id = ?"
COUNT = "UPDATE rota_lane SET unfinished = ?, delayed = ?, kept = ? WHERE id = ?"
BY_IDS = f"SELECT {COLUMNS} FROM json_each(?) e JOIN rota_lane l ON l.id = e.value"
WITH_HEADS = f"""SELECT {COLUMNS}, {HEAD} FROM json_each(?) e JOIN rota_lane l ON l.id = e.value
    JOIN rota_run r ON r.seq = l.head"""
INSERT = """INSERT INTO rota_lane (id, rank, queue, handler, pinned, token, number, removed, settled_token, unfinished,
    delayed, kept, paused) VALUES (?, 0, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0)"""

_FIRST_START = "SELECT min(start_at) FROM rota_run WHERE lane = ? AND state = 1"
_PROMOTE = """UPDATE rota_run SET state = 0
    WHERE lane = ? AND state = 1 AND (start_at <= ? OR typeof(start_at) != 'integer')"""
_FIRST_WAITING = f"""SELECT r.lane, {HEAD} FROM json_each(?) e JOIN rota_run r ON r.seq =
    (SELECT w.seq FROM rota_run w WHERE w.lane = e.value AND w.state = 0 ORDER BY w.seq LIMIT 1)"""
assert (WAITING, DELAYED) == (0, 1)  # as written in these statements and in their partial indexes


Head = Sequence[Any]  # the columns of `HEAD`


class Lane:
    """A job's place in the store; see `rota_lane` in schema.sql."""

    __slots__ = ("id", *_HOT, "is_changed", "is_counted", "run")

    def __init__(
        self,
        id: int,
        rank: int,
        queue: str,
        handler: str,
        ready_at: int | None,
        wake_at: int | None,
        head: int | None,
        pinned: int,
        lease_until: int | None,
        token: int,
        node: str | None,
        number: int,
        started_at: int | None,
        stop: str | None,
        removed: int,
        settled_token: int,
        settled_node: str | None,
        unfinished: int,
        delayed: int,
        kept: int,
        definition: int | None,
        paused: int,
        last_attempt_at: int | None,
        last_success_at: int | None,
        last_failure_at: int | None,
    ) -> None:
        self.id = id
        self.rank = rank
        self.queue = queue
        self.handler = handler
        self.ready_at = ready_at
        self.wake_at = wake_at
        self.head = head
        self.pinned = pinned
        self.lease_until = lease_until
        self.token = token
        self.node = node
        self.number = number
        self.started_at = started_at
        self.stop = stop
        self.removed = removed
        self.settled_token = settled_token
        self.settled_node = settled_node
        self.unfinished = unfinished
        self.delayed = delayed
        self.kept = kept
        self.definition = definition
        self.paused = paused
        self.last_attempt_at = last_attempt_at
        self.last_success_at = last_success_at
        self.last_failure_at = last_failure_at
        self.is_changed = False
        self.is_counted = False
        self.run: Head | None = None  # the run in `head`, where it was read

    @property
    def has_read_head(self) -> bool:
        return self.run is not None and self.run[0] == self.head

    def values(self) -> tuple[Any, ...]:
        return (
            self.rank, self.queue, self.handler, self.ready_at, self.wake_at, self.head, self.pinned, self.lease_until,
            self.token, self.node, self.number, self.started_at, self.stop, self.removed, self.settled_token,
            self.settled_node, self.unfinished, self.delayed, self.kept, self.definition, self.paused,
            self.last_attempt_at, self.last_success_at, self.last_failure_at, self.id,
        )  # fmt: skip

    def take(self, until: int, node: str, number: int, now: int) -> None:
        """Claimed, as the statement in claiming.py writes it."""
        self.token += 1
        self.lease_until, self.node, self.number, self.started_at, self.last_attempt_at = until, node, number, now, now
        self.pinned = 1
        self.ready_at = self.wake_at = None

    def free(self) -> None:
        """End the lease, with the request to stop that belonged to it."""
        self.lease_until = self.node = self.started_at = self.stop = None
        self.removed = 0
        self.is_changed = True


def refresh(session: Session, *lanes: Lane) -> None:
    """Find the next run of each lane, and since when the lane is claimable or when to look again."""
    waiting: dict[int, tuple[Lane, int]] = {}
    for lane in lanes:
        since = _ready_since(lane, session.now)
        lane.ready_at = lane.wake_at = None
        lane.is_changed = True
        if lane.lease_until is not None:
            continue
        if lane.pinned:
            _offer_retry(session, lane, since)
            continue
        lane.head = None
        if lane.delayed:
            lane.wake_at = first_start(session, lane)
        if lane.unfinished > lane.delayed:
            waiting[lane.id] = (lane, since)
    if waiting:
        _offer_waiting(session, waiting)


def _ready_since(lane: Lane, now: int) -> int:
    """A ready lane keeps its place; a lane that waited for an instant is ready since that instant, however late this is
    noticed."""
    if lane.ready_at is not None:
        return lane.ready_at
    return now if lane.wake_at is None else min(lane.wake_at, now)


def _offer_waiting(session: Session, waiting: dict[int, tuple[Lane, int]]) -> None:
    rows = session.db.execute(_FIRST_WAITING, (str(list(waiting)),)).fetchall()
    for lane_id, *head in rows:
        lane, since = waiting[lane_id]
        lane.run, lane.head = head, head[0]
        offer(session, lane, head[2], since)


def _offer_retry(session: Session, lane: Lane, since: int) -> None:
    query = "SELECT start_at, definition FROM rota_run WHERE seq = ?"
    start_at, definition = session.db.execute(query, (lane.head,)).fetchone()
    if not isinstance(start_at, int) or start_at <= session.now:
        offer(session, lane, definition, since)
    elif not lane.paused:
        lane.wake_at = start_at


def offer(session: Session, lane: Lane, definition: int, since: int) -> None:
    """Its head may start, unless the job is paused."""
    try:
        lane.handler = session.definition(definition).handler_name
    except DAMAGE:
        lane.handler = handler_of_lane(session, lane.id)  # one of its nodes claims it, and dead-letters it (SAFE-1)
    if not lane.paused and lane.definition is not None:
        lane.ready_at = since


def first_start(session: Session, lane: Lane) -> int | None:
    """Delayed runs whose earliest start has come take their place; when the next of them comes (RUN-2)."""
    first = session.one(_FIRST_START, (lane.id,))
    if first is not None and (not isinstance(first, int) or first <= session.now):
        lane.delayed -= session.db.execute(_PROMOTE, (lane.id, session.now)).rowcount
        lane.is_counted = True
        first = session.one(_FIRST_START, (lane.id,))
    return whole_or_none(first)
