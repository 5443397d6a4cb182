"""Letters that the admins are to be told of; one node at a time tells them (RETRY-5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import islice

from rota.backend import Fact, FactKind, FailedDelivery, JobKey, is_relayed
from rota.model.definition import JobDefinition, Manual
from rota_backends.sqlite import relay_lease
from rota_backends.sqlite.calls import Answer
from rota_backends.sqlite.codes import instant, uuid
from rota_backends.sqlite.session import Session

_AUDIENCE = "admins"
_UNTOLD = "SELECT seq, scope_id, job_id, run_id, at FROM rota_notice WHERE problem IS NULL ORDER BY seq"


def peek_relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    failed: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | Answer | None:
    """Mostly there is nothing to tell: then nobody needs the turn. Or it is another node's to tell."""
    if not done and not failed and untold_since(session) is None:
        return []
    node, until = relay_lease.holder(session, _AUDIENCE)
    is_anothers = node != node_id and is_relayed(until, session.time)
    return None if is_anothers else Answer.WRITE


def relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    failed: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | None:
    """Forget what was told, keep the turn, give the next ones; None where it is another node's to tell."""
    if not relay_lease.take(session, _AUDIENCE, node_id, lease):
        return None
    session.db.executemany("DELETE FROM rota_notice WHERE seq = ?", [(seq,) for seq in done])
    problems = [(each.error, each.seq) for each in failed]
    session.db.executemany("UPDATE rota_notice SET problem = ? WHERE seq = ?", problems)
    found = (
        Fact(
            seq,
            FactKind.DEAD_LETTERED,
            instant(at),
            JobDefinition(job_id, "unknown", Manual(), scope_id=scope_id),
            uuid(run_id),
        )
        for seq, scope_id, job_id, run_id, at in session.db.execute(_UNTOLD)
    )
    return list(islice((fact for fact in found if fact.key not in skip), limit))


def untold_since(session: Session) -> datetime | None:
    """When the first letter died of which the admins were not told."""
    first = session.db.execute(_UNTOLD).fetchone()
    return None if first is None else instant(first[-1])
