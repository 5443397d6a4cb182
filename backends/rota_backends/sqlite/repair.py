"""Damaged rows of lanes are made anew from the jobs and the runs they stand for (SAFE-1).

Every claim compares the numbers in the rows of lanes, so a value that is no number would stop the claims of all jobs.
Such rows are looked for only after a call has failed.
"""

from __future__ import annotations

from contextlib import suppress

from rota.logger import safe_logger
from rota.model.validation import DEFAULT_SCOPE
from rota_backends.sqlite.codes import FIRST_INSTANT, LAST_INSTANT
from rota_backends.sqlite.lane import INSERT, Lane, refresh
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, key_of_lane

log = safe_logger("rota.sqlite")

_NUMBERS = ("rank", "pinned", "token", "number", "removed", "settled_token", "unfinished", "delayed", "kept", "paused")
_INSTANTS = (
    "ready_at", "wake_at", "head", "lease_until", "started_at", "definition", "last_attempt_at", "last_success_at",
    "last_failure_at",
)  # fmt: skip
_NO_NUMBER = " OR ".join(f"typeof({each}) != 'integer'" for each in _NUMBERS)
_NO_INSTANT = " OR ".join(f"typeof({each}) NOT IN ('integer', 'null')" for each in _INSTANTS)
_NO_RUN = "head IS NOT NULL AND NOT EXISTS (SELECT 1 FROM rota_run r WHERE r.seq = head)"
_NO_DATE = " OR ".join(
    f"{each} NOT BETWEEN {FIRST_INSTANT} AND {LAST_INSTANT}" for each in _INSTANTS if each not in ("head", "definition")
)
_NO_COUNT = " OR ".join(f"{each} < 0" for each in ("unfinished", "delayed", "kept"))
_NO_HEAD = "ready_at IS NOT NULL AND head IS NULL"
_NO_TIME = "lease_until IS NOT NULL AND (started_at IS NULL OR node IS NULL OR head IS NULL)"
_NO_JOB = "SELECT id FROM rota_lane l WHERE NOT EXISTS (SELECT 1 FROM rota_job j WHERE j.id = l.id)"
_NO_LANE = "SELECT id FROM rota_job j WHERE NOT EXISTS (SELECT 1 FROM rota_lane l WHERE l.id = j.id)"
_JOB = "INSERT INTO rota_job (id, scope_id, job_id, definition) VALUES (?, ?, ?, 0)"
_DAMAGED = f"""SELECT id FROM rota_lane WHERE {_NO_NUMBER} OR {_NO_INSTANT} OR ({_NO_RUN}) OR ({_NO_TIME})
    OR {_NO_DATE} OR {_NO_COUNT} OR ({_NO_HEAD})
    OR typeof(queue) != 'text' OR typeof(handler) != 'text'"""
# A lease is given up, and its run starts again: the instant as token is above all tokens given before.
_MADE_ANEW = """UPDATE rota_lane SET rank = 0, queue = 'default', handler = '', ready_at = NULL, wake_at = NULL,
    head = NULL, pinned = 0, lease_until = NULL, token = ?, node = NULL, number = 0, started_at = NULL, stop = NULL,
    removed = 0, settled_token = 0, settled_node = NULL,
    unfinished = (SELECT count(*) FROM rota_run r WHERE r.lane = rota_lane.id),
    delayed = (SELECT count(*) FROM rota_run r WHERE r.lane = rota_lane.id AND r.state = 1),
    kept = (SELECT count(*) FROM rota_history h WHERE h.lane = rota_lane.id AND h.letter = 0),
    definition = (SELECT j.definition FROM rota_job j WHERE j.id = rota_lane.id),
    paused = (SELECT j.paused IS NOT NULL FROM rota_job j WHERE j.id = rota_lane.id),
    last_attempt_at = NULL, last_success_at = NULL, last_failure_at = NULL WHERE id = ?"""
_RUNS_WAIT = """UPDATE rota_run SET state = 0, start_at = NULL WHERE lane = ?
    AND (state NOT IN (0, 1) OR typeof(start_at) NOT IN ('integer', 'null'))"""


def repair_lanes(session: Session) -> int:
    """Make the damaged ones anew; how many there were."""
    _add_missing_rows(session)
    damaged = [lane_id for (lane_id,) in session.db.execute(_DAMAGED).fetchall()]
    for lane_id in damaged:
        session.db.execute(_RUNS_WAIT, (lane_id,))
        session.db.execute(_MADE_ANEW, (session.now, lane_id))
    session.forget_lanes()
    for lane_id in damaged:
        _offer(session, session.lane_by_id(lane_id))
    return len(damaged)


def _add_missing_rows(session: Session) -> None:
    """A lane whose job has no row gets one, and a job without a lane gets that: both are deleted by hand at times.

    The new row of a job has a name that says so, and its runs become dead letters under it: the handler has no name.
    """
    for (lane_id,) in session.db.execute(_NO_JOB).fetchall():
        session.db.execute(_JOB, (lane_id, DEFAULT_SCOPE, f"unreadable-{lane_id}"))
        session.db.execute("UPDATE rota_lane SET rank = 0.5 WHERE id = ?", (lane_id,))  # damaged: it is made anew below
    for (job,) in session.db.execute(_NO_LANE).fetchall():
        session.db.execute(INSERT, (job,))
        session.db.execute("UPDATE rota_lane SET rank = 0.5 WHERE id = ?", (job,))


def _offer(session: Session, lane: Lane) -> None:
    with suppress(*DAMAGE):  # a lane without a readable definition keeps the defaults
        if lane.definition is not None:
            definition = session.definition(lane.definition)
            lane.queue, lane.rank = definition.queue, -definition.priority
    refresh(session, lane)
    session.has_news = True
    job = key_of_lane(session, lane.id)
    log.warning("job %r in scope %r: its damaged row in rota_lane was made anew", job.job_id, job.scope_id)
