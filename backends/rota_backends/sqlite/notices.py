"""Letters that the admins are to be told of; one node at a time tells them (RETRY-5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import islice

from rota.backend import FailedDelivery, JobKey, Notice, is_held
from rota_backends.sqlite import relay_lease
from rota_backends.sqlite.pending_calls import Peeked
from rota_backends.sqlite.codes import instant, uuid
from rota_backends.sqlite.session import Session

_AUDIENCE = "admins"
_UNTOLD = "SELECT seq, scope_id, job_id, run_id, at FROM rota_notice WHERE problem IS NULL ORDER BY seq"


def peek_tells(session: Session) -> Peeked | None:
    """Most stores have been told long ago."""
    return None if _has_notifiers(session) else Peeked.NEEDS_WRITE


def tell(session: Session) -> None:
    """From now on they are for nodes that have a notifier of their own; who took them so far may have none."""
    session.db.execute("UPDATE rota_meta SET value = 1 WHERE name = 'tells_admins'")
    relay_lease.end(session, _AUDIENCE)


def peek(
    session: Session,
    node_id: str,
    done: Sequence[int],
    set_aside: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
    has_notifier: bool,
) -> list[Notice] | Peeked | None:
    """Mostly there is nothing to tell: then nobody needs the turn. Or it is another node's to tell."""
    if not done and not set_aside and untold_since(session) is None:
        return []
    node, until = relay_lease.holder(session, _AUDIENCE)
    is_anothers = node != node_id and is_held(until, session.time, lease)
    return None if is_anothers or _is_deaf(session, has_notifier) else Peeked.NEEDS_WRITE


def relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    set_aside: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
    has_notifier: bool,
) -> list[Notice] | None:
    """Forget what was told, keep the turn, give the next ones; None where it is another node's to tell."""
    if _is_deaf(session, has_notifier) or not relay_lease.take(session, _AUDIENCE, node_id, lease):
        return None
    session.db.executemany("DELETE FROM rota_notice WHERE seq = ?", [(seq,) for seq in done])
    problems = [(each.error, each.seq) for each in set_aside]
    session.db.executemany("UPDATE rota_notice SET problem = ? WHERE seq = ?", problems)
    found = (
        Notice(seq, JobKey(scope_id, job_id), uuid(run_id), instant(at))
        for seq, scope_id, job_id, run_id, at in session.db.execute(_UNTOLD)
    )
    return list(islice((notice for notice in found if notice.key not in skip), limit))


def untold_since(session: Session) -> datetime | None:
    """When the first letter died of which the admins were not told."""
    first = session.db.execute(_UNTOLD).fetchone()
    return None if first is None else instant(first[-1])


def _is_deaf(session: Session, has_notifier: bool) -> bool:
    return not has_notifier and _has_notifiers(session)


def _has_notifiers(session: Session) -> bool:
    return bool(session.one("SELECT value FROM rota_meta WHERE name = 'tells_admins'"))
