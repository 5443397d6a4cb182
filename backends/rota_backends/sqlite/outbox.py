"""The outbox: facts that an audience has not been told yet, in order; one node at a time tells them (HIST-4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from attrs import field, frozen

from rota.backend import Audience, Fact, FailedDelivery, JobKey, is_fresh, is_relayed
from rota_backends.sqlite import locks
from rota_backends.sqlite.codes import AUDIENCE_CODE, CAUSES, KINDS, instant
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
from rota_backends.sqlite.pending_calls import Peeked
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, partial_definition

_ROWS = 16  # read at once: those of a busy node hold a hundred facts each
PAGE = f"SELECT id, body FROM rota_outbox WHERE audience = ? AND id > ? ORDER BY id LIMIT {_ROWS}"
DEFINITIONS = f"""SELECT DISTINCT e.value FROM rota_outbox f, json_each(f.body, '$[{1 + DEFINITION}]') e
    WHERE json_valid(f.body)"""


@frozen
class Asked:
    """The arguments of `Backend.outbox`."""

    audience: Audience
    node_id: str
    done: Sequence[int]
    failed: Sequence[FailedDelivery]
    skip: Collection[JobKey]
    limit: int
    lease: timedelta

    @property
    def changes(self) -> bool:
        """True where facts are to be deleted or set aside."""
        return bool(self.done or self.failed)


@frozen
class Page:
    """Rows of the outbox with their facts by place, and the numbers of rows that cannot be decoded."""

    rows: list[tuple[int, dict[int, FactRow]]] = field(factory=list)
    damaged: list[int] = field(factory=list)

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to tell or to set aside."""
        return not self.rows and not self.damaged


def peek_relay(session: Session, asked: Asked) -> list[Fact] | Peeked | None:
    """Answer from a snapshot: another node relays, or there is nothing to tell and nothing to write."""
    if asked.audience is Audience.ADMINS and not asked.changes and _page(session, asked, 1).is_empty:
        return []
    holder, until = locks.relay_lease(session, asked.audience)
    if holder != asked.node_id:
        return None if is_relayed(until, session.time) else Peeked.NEEDS_WRITE
    if asked.changes or not is_fresh(until, session.time, asked.lease) or not _page(session, asked, 1).is_empty:
        return Peeked.NEEDS_WRITE
    return []


def relay(session: Session, asked: Asked) -> list[Fact] | None:
    """Delete the facts that were told, renew the lease, give the next page; None where another node relays."""
    if not locks.take_relay_lease(session, asked.audience, asked.node_id, asked.lease):
        return None
    for each in asked.failed:
        _set_aside(session, asked.audience, each)
    _drop(session, [*asked.done, *(each.seq for each in asked.failed)])
    while not (page := _page(session, asked, asked.limit)).is_empty:
        _set_rows_aside(session, asked.audience, page.damaged)
        facts = _facts(session, asked.audience, page)
        if facts:
            return facts
    return []


def untold_since(session: Session, audience: Audience) -> datetime | None:
    """The instant of the oldest fact in the outbox of this audience."""
    everything = Asked(audience, "", (), (), (), 1, timedelta(0))
    for _, facts in _page(session, everything, 1).rows:
        try:
            return instant(next(iter(facts.values()))[AT])
        except DAMAGE:
            return session.time
    return None


def _drop(session: Session, done: Sequence[int]) -> None:
    by_row: dict[int, set[int]] = {}
    for seq in done:
        row, place = place_of(seq)
        by_row.setdefault(row, set()).add(place)
    for row, places in by_row.items():
        whole = session.db.execute("DELETE FROM rota_outbox WHERE id = ? AND count = ?", (row, len(places)))
        if not whole.rowcount:
            _keep_rest(session, row, places)
        session.untold.pop(row, None)


def _keep_rest(session: Session, row: int, told: set[int]) -> None:
    left = {place: fact for place, fact in _stored_row(session, row).items() if place not in told}
    if left:
        session.db.execute("UPDATE rota_outbox SET count = NULL, body = ? WHERE id = ?", (pack(left), row))
    else:
        session.db.execute("DELETE FROM rota_outbox WHERE id = ?", (row,))


def _set_aside(session: Session, audience: Audience, failed: FailedDelivery) -> None:
    row, place = place_of(failed.seq)
    fact = _stored_row(session, row).get(place)
    if fact is not None:
        run_id = None if fact[RUN] is None else fact[RUN].bytes
        session.db.execute(
            "INSERT OR REPLACE INTO rota_aside VALUES (?, ?, ?, ?, ?, ?, ?)",
            (failed.seq, AUDIENCE_CODE[audience], fact[DEFINITION], fact[KIND], run_id, fact[AT], failed.error),
        )


def _set_rows_aside(session: Session, audience: Audience, rows: list[int]) -> None:
    """Rows that cannot be decoded; the others are told all the same (SAFE-1)."""
    for row in rows:
        session.db.execute(
            "INSERT OR REPLACE INTO rota_aside VALUES (?, ?, NULL, NULL, NULL, ?, 'the row cannot be read')",
            (number_of(row, 0), AUDIENCE_CODE[audience], session.now),
        )
        session.db.execute("DELETE FROM rota_outbox WHERE id = ?", (row,))


def _stored_row(session: Session, row: int) -> dict[int, FactRow]:
    body = session.one("SELECT body FROM rota_outbox WHERE id = ?", (row,))
    return {} if body is None else unpack(body)


def _page(session: Session, asked: Asked, limit: int) -> Page:
    """Rows in order. It ends with a whole row where it can: a row that is told in part has to be written again."""
    lanes = {lane.id for key in asked.skip if (lane := session.lane(key)) is not None}
    page, last, room = Page(), 0, limit
    while room > 0 and (rows := session.db.execute(PAGE, (AUDIENCE_CODE[asked.audience], last)).fetchall()):
        for last, body in rows:
            try:
                facts = _without(lanes, session.untold.get(last) or unpack(body))
            except DAMAGE:
                page.damaged.append(last)
                continue
            if len(facts) > room:
                if not page.rows:
                    page.rows.append((last, dict(islice(facts.items(), limit))))
                return page
            if facts:
                page.rows.append((last, facts))
                room -= len(facts)
    return page


def _without(lanes: set[int], facts: dict[int, FactRow]) -> dict[int, FactRow]:
    return {place: fact for place, fact in facts.items() if fact[LANE] not in lanes} if lanes else facts


class _Instants(dict[int | None, Any]):
    """A page holds few distinct ones: those of the batches its facts come from."""

    def __missing__(self, stored: int) -> datetime:
        made = self[stored] = instant(stored)
        return made


class _Definitions(dict[int, Any]):
    """Those of a page; for one that cannot be decoded, as much as its job's row tells (SAFE-1)."""

    def __init__(self, session: Session, page: Page, found: dict[int, Any]) -> None:
        super().__init__(found)
        self._session = session
        self._page = page

    def __missing__(self, number: int) -> Any:
        facts = (fact for _, facts in self._page.rows for fact in facts.values())
        lane = next(fact[LANE] for fact in facts if fact[DEFINITION] == number)
        made = self[number] = partial_definition(self._session, lane)
        return made


def _facts(session: Session, audience: Audience, page: Page) -> list[Fact]:
    numbers = {fact[DEFINITION] for _, facts in page.rows for fact in facts.values()}
    definitions = _Definitions(session, page, session.definitions(numbers))
    instants = _Instants({None: None})
    try:
        return [
            Fact(
                number_of(row, place), KINDS[kind], instants[at], definitions[definition], run_id, attempt, revision,
                None if cause is None else CAUSES[cause], instants[due], instants[started_at], error, instants[next_at],
                records, depth,
            )
            for row, facts in page.rows
            for place, (kind, at, _, definition, run_id, attempt, revision, cause, due, started_at, error, next_at,
                        records, depth) in facts.items()
        ]  # fmt: skip
    except DAMAGE:
        return _readable_facts(session, audience, page)


def _readable_facts(session: Session, audience: Audience, page: Page) -> list[Fact]:
    """One by one: those that cannot be decoded are set aside (SAFE-1)."""
    singly = [(row, place, fact) for row, facts in page.rows for place, fact in facts.items()]
    if len(singly) > 1:
        alone = (Page([(row, {place: fact})]) for row, place, fact in singly)
        return [fact for each in alone for fact in _facts(session, audience, each)]
    for row, place, _ in singly:
        failed = FailedDelivery(number_of(row, place), "the stored fact cannot be read")
        _set_aside(session, audience, failed)
        _drop(session, [failed.seq])
    return []
