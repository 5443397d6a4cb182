"""Facts not yet told, in order; one node at a time tells them (HIST-4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rota.backend import Fact, FailedDelivery, JobKey, is_fresh, is_relayed
from rota_backends.sqlite import relay_lease
from rota_backends.sqlite.calls import Answer
from rota_backends.sqlite.codes import CAUSES, KINDS, instant
from rota_backends.sqlite.facts import (
    AT,
    DEFINITION,
    KIND,
    LANE,
    RUN,
    FactRow,
    number_of,
    pack,
    place_of,
    unpack,
)
from rota_backends.sqlite.session import Session

_ROWS = 16  # read at once: those of a busy node hold a hundred facts each
_PAGE = f"SELECT id, body FROM rota_fact WHERE id > ? ORDER BY id LIMIT {_ROWS}"
_AUDIENCE = "events"
DEFINITIONS = f"SELECT DISTINCT e.value FROM rota_fact f, json_each(f.body, '$[{1 + DEFINITION}]') e"


def tell(session: Session) -> None:
    """From now on facts are recorded."""
    session.db.execute("UPDATE rota_meta SET value = 1 WHERE name = 'tells_facts'")


def peek_relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    failed: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | Answer | None:
    """Another node relays; or there is nothing to tell, nothing to write down, and the lease is still fresh."""
    holder, until = relay_lease.holder(session, _AUDIENCE)
    if holder != node_id:
        return None if is_relayed(until, session.time) else Answer.WRITE
    if done or failed or not is_fresh(until, session.time, lease) or _page(session, skip, 1):
        return Answer.WRITE
    return []


def relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    failed: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | None:
    """Forget what was told, keep the turn, give the next page; None where another node has the turn."""
    if not relay_lease.take(session, _AUDIENCE, node_id, lease):
        return None
    for each in failed:
        _put_aside(session, each)
    _drop(session, [*done, *(each.seq for each in failed)])
    return _facts(session, _page(session, skip, limit))


def untold_since(session: Session) -> datetime | None:
    """When the first fact happened that nobody was told of."""
    for _, facts in _page(session, (), 1):
        return instant(next(iter(facts.values()))[AT])
    return None


def _drop(session: Session, done: Sequence[int]) -> None:
    by_row: dict[int, set[int]] = {}
    for seq in done:
        row, place = place_of(seq)
        by_row.setdefault(row, set()).add(place)
    for row, places in by_row.items():
        whole = session.db.execute("DELETE FROM rota_fact WHERE id = ? AND count = ?", (row, len(places)))
        if not whole.rowcount:
            _keep_rest(session, row, places)
        session.untold.pop(row, None)


def _keep_rest(session: Session, row: int, told: set[int]) -> None:
    left = {place: fact for place, fact in _row(session, row).items() if place not in told}
    if left:
        session.db.execute("UPDATE rota_fact SET count = NULL, body = ? WHERE id = ?", (pack(left), row))
    else:
        session.db.execute("DELETE FROM rota_fact WHERE id = ?", (row,))


def _put_aside(session: Session, aside: FailedDelivery) -> None:
    row, place = place_of(aside.seq)
    fact = _row(session, row).get(place)
    if fact is not None:
        run_id = None if fact[RUN] is None else fact[RUN].bytes
        session.db.execute(
            "INSERT OR REPLACE INTO rota_aside VALUES (?, ?, ?, ?, ?, ?)",
            (aside.seq, fact[DEFINITION], fact[KIND], run_id, fact[AT], aside.error),
        )


def _row(session: Session, row: int) -> dict[int, FactRow]:
    body = session.one("SELECT body FROM rota_fact WHERE id = ?", (row,))
    return {} if body is None else unpack(body)


Page = list[tuple[int, dict[int, FactRow]]]


def _page(session: Session, skip: Collection[JobKey], limit: int) -> Page:
    """Rows in order. It ends with a whole one where it can: to tell a part of one is to write the rest anew."""
    lanes = {lane.id for key in skip if (lane := session.lane(key)) is not None}
    found: Page = []
    last, room = 0, limit
    while room > 0 and (rows := session.db.execute(_PAGE, (last,)).fetchall()):
        for last, body in rows:
            facts = _without(lanes, session.untold.get(last) or unpack(body))
            if len(facts) > room:
                return found or [(last, dict(islice(facts.items(), limit)))]
            if facts:
                found.append((last, facts))
                room -= len(facts)
    return found


def _without(lanes: set[int], facts: dict[int, FactRow]) -> dict[int, FactRow]:
    return {place: fact for place, fact in facts.items() if fact[LANE] not in lanes} if lanes else facts


class _Instants(dict[int | None, Any]):
    """A page holds few distinct ones: those of the batches its facts come from."""

    def __missing__(self, stored: int) -> datetime:
        made = self[stored] = instant(stored)
        return made


def _facts(session: Session, page: Page) -> list[Fact]:
    instants = _Instants({None: None})
    definitions = session.definitions({fact[DEFINITION] for _, facts in page for fact in facts.values()})
    return [
        Fact(
            number_of(row, place), KINDS[kind], instants[at], definitions[definition], run_id, attempt, revision,
            None if cause is None else CAUSES[cause], instants[due], instants[started_at], error, instants[next_at],
            records, depth,
        )
        for row, facts in page
        for place, (kind, at, _, definition, run_id, attempt, revision, cause, due, started_at, error, next_at,
                    records, depth) in facts.items()
    ]  # fmt: skip
