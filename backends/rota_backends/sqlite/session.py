"""A connection in use: the state of the current transaction, and what is cached between transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from rota.backend import FACTS_WANTED, Audience, JobKey
from rota.clock import Clock
from rota.codec.definitions import read_definition
from rota.model.definition import JobDefinition
from rota_backends.sqlite.codes import AUDIENCE_CODE, dump, micros
from rota_backends.sqlite.facts import FactRow, pack
from rota_backends.sqlite.lane import BY_ID, BY_IDS, BY_KEY, COUNT, INSERT, NAMES, UPDATE, WITH_HEADS, Head, Lane
from rota_backends.sqlite.unreadable import DAMAGE, UnreadableRow, why

_WIDTH = len(NAMES)
SETTING = "SELECT value FROM rota_setting WHERE name = ?"
_REMEMBERED = 100_000
_LANES_REMEMBERED = 5_000
_BODY = "SELECT d.body, j.scope_id, j.job_id FROM rota_definition d JOIN rota_job j ON j.id = d.job WHERE d.id = ?"
_BODIES = """SELECT d.id, d.body, j.scope_id, j.job_id FROM json_each(?) e JOIN rota_definition d ON d.id = e.value
    JOIN rota_job j ON j.id = d.job"""
_FACTS_A_ROW = 100  # so that a page of the relay ends with a row, or little before
_ROWS_OF_FACTS = 200  # remembered, so that whoever made them need not read them to tell them


class Session:
    """A connection in use."""

    def __init__(self, db: sqlite3.Connection, clock: Clock) -> None:
        self.db = db
        self._clock = clock
        self.time: datetime = clock.now()
        self.now = 0  # the same, as stored
        self.has_news = False  # something may have become claimable or due
        self.facts: list[FactRow] = []  # for the event store
        self.letters: list[FactRow] = []  # facts for the admins
        self._touched: dict[int, Lane] = {}  # by this transaction
        self._last_seq: int | None = None
        self._version = 0  # SQLite's counter of commits by other connections
        self._schema = 0  # and of changes of the tables: a restored copy counts as one
        self.definitions_seen = 0  # how far old definitions have been looked through
        self.jobs_looked_at = 0  # how far jobs have been looked through for unreadable ones
        self.unreadable_jobs: dict[int, tuple[str, str]] = {}  # by lane: scope, name and reason
        self._forget()

    def _forget(self) -> None:
        """Drop the caches: they may hold rows of a transaction that was rolled back."""
        self._lanes: dict[int, Lane] = {}  # as they are stored; right until another connection commits
        self.untold: dict[int, dict[int, FactRow]] = {}  # rows of facts, likewise
        self._definitions: dict[int, JobDefinition] = {}
        self._keys: dict[int, JobKey] = {}
        self._ids: dict[JobKey, int] = {}
        self.claimed: dict[int, tuple[int, Head, UUID]] = {}  # by lane: token and run, for the settlement
        self._tells = False

    def forget_lanes(self) -> None:
        """They were changed in the file itself."""
        self._lanes.clear()
        self._touched.clear()
        self.claimed.clear()

    # --- transactions ---

    def begin(self, how: str) -> None:
        self.db.execute(how)
        self.time = self._clock.now()
        self.now = micros(self.time)
        self.has_news = False
        self._touched.clear()
        self._last_seq = None
        self.facts.clear()
        self.letters.clear()
        (version,) = self.db.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._lanes) > _LANES_REMEMBERED:
            self._lanes.clear()
            self.untold.clear()
            self._version = version
            self._forget_if_restored()

    def _forget_if_restored(self) -> None:
        """Drop the caches after a restore: the restored store gives numbers again that are cached here."""
        (schema,) = self.db.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema:
            self._forget()
            self._schema = schema

    def end_snapshot(self) -> None:
        """End a read transaction; the caches stay valid."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def rollback(self) -> None:
        """Roll the transaction back and drop the caches."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        self._forget()

    def flush(self) -> None:
        """Write what the transaction has only in memory so far."""
        self.write_lanes()
        if self._last_seq is not None:
            self.db.execute("UPDATE rota_meta SET value = ? WHERE name = 'runs'", (self._last_seq,))
        for audience, facts in ((Audience.EVENTS, self.facts), (Audience.ADMINS, self.letters)):
            if facts:
                self._write_facts(AUDIENCE_CODE[audience], facts)

    def next_seq(self) -> int:
        """The number of the next run to arrive: never given twice."""
        if self._last_seq is None:
            self._last_seq = int(self.one("SELECT value FROM rota_meta WHERE name = 'runs'"))
        self._last_seq += 1
        return self._last_seq

    def _write_facts(self, audience: int, made: list[FactRow]) -> None:
        for first in range(0, len(made), _FACTS_A_ROW):
            facts = dict(enumerate(made[first : first + _FACTS_A_ROW]))
            row = (audience, len(facts), pack(facts))
            stored = self.db.execute("INSERT INTO rota_outbox (audience, count, body) VALUES (?, ?, ?)", row)
            if len(self.untold) < _ROWS_OF_FACTS and stored.lastrowid is not None:
                self.untold[stored.lastrowid] = facts
        made.clear()

    # --- facts ---

    @property
    def tells_facts(self) -> bool:
        if not self._tells:
            self._tells = bool(self.one(SETTING, (FACTS_WANTED,)))
        return self._tells

    # --- lanes ---

    def lane(self, key: JobKey) -> Lane | None:
        """The lane of a job, also of a removed one; None for an unknown or impossible name."""
        known = self._ids.get(key)
        if known is not None:
            return self.lane_by_id(known)
        row = self._found(BY_KEY, key)
        if row is None:
            return None
        self.remember_id(key, row[0])
        return self.adopt(row)

    def _found(self, query: str, key: JobKey) -> Any:
        if not (isinstance(key[0], str) and isinstance(key[1], str)):
            return None
        try:
            return self.db.execute(query, key).fetchone()
        except UnicodeEncodeError:
            return None

    def remember_id(self, key: JobKey, lane_id: int) -> None:
        if len(self._ids) >= _REMEMBERED:
            self._ids.clear()
        self._ids[key] = lane_id

    def lane_by_id(self, lane_id: int) -> Lane:
        lane = self._lanes.get(lane_id)
        if lane is None:
            return self.adopt(self.db.execute(BY_ID, (lane_id,)).fetchone())
        self._touched[lane_id] = lane
        return lane

    def adopt(self, row: tuple[Any, ...]) -> Lane:
        """The lane of a row that begins with its columns; a cached lane wins, because it may have changed."""
        lane = self._lanes.get(row[0])
        if lane is None:
            lane = self._lanes[row[0]] = Lane(*row[:_WIDTH])
        self._touched[row[0]] = lane
        return lane

    def load_lanes(self, keys: Iterable[JobKey]) -> None:
        """Read many at once; those not known by number are left to `lane`."""
        known = [number for key in keys if (number := self._ids.get(key)) is not None and number not in self._lanes]
        if len(known) > 1:
            for row in self.db.execute(BY_IDS, (str(known),)).fetchall():
                self.adopt(row)

    def lanes_with_heads(self, ids: list[int]) -> list[Lane]:
        """Lanes whose next run may start, with that run read."""
        missing = [number for number in ids if (lane := self._lanes.get(number)) is None or not lane.has_read_head]
        if missing:
            for row in self.db.execute(WITH_HEADS, (str(missing),)):
                self.adopt(row).run = row[_WIDTH:]
        return [self._lanes[number] for number in ids]

    def new_lane(self, key: JobKey) -> Lane:
        made = self.db.execute("INSERT INTO rota_job (scope_id, job_id) VALUES (?, ?)", key)
        assert made.lastrowid is not None
        self.db.execute(INSERT, (made.lastrowid,))
        return self.lane_by_id(made.lastrowid)

    def write_lanes(self) -> None:
        changed = [lane for lane in self._touched.values() if lane.is_changed]
        if changed:
            self.db.executemany(UPDATE, [lane.values() for lane in changed])
        counted = [
            (lane.unfinished, lane.delayed, lane.kept, lane.id)
            for lane in self._touched.values()
            if lane.is_counted and not lane.is_changed
        ]
        if counted:
            self.db.executemany(COUNT, counted)
        for lane in self._touched.values():
            lane.is_changed = lane.is_counted = False

    def has_ready_lanes(self) -> bool:
        return self.db.execute("SELECT 1 FROM rota_lane WHERE ready_at IS NOT NULL LIMIT 1").fetchone() is not None

    # --- definitions ---

    def definition(self, number: int) -> JobDefinition:
        """Raises `UnreadableRow` where it cannot be decoded."""
        found = self._definitions.get(number)
        if found is None:
            row = self.db.execute(_BODY, (number,)).fetchone()
            if row is None:
                raise UnreadableRow("the row of the definition is missing")
            found = self._decoded(number, *row)
        return found

    def definitions(self, numbers: Collection[int]) -> dict[int, JobDefinition]:
        """Many at once, without those that cannot be decoded."""
        found = {number: known for number in numbers if (known := self._definitions.get(number)) is not None}
        missing = [number for number in numbers if number not in found and isinstance(number, int)]
        if missing:
            for number, *row in self.db.execute(_BODIES, (str(missing),)):
                with suppress(UnreadableRow):
                    found[number] = self._decoded(number, *row)
        return found

    def _decoded(self, number: int, body: str, scope_id: str, job_id: str) -> JobDefinition:
        try:
            definition = read_definition(body)
        except DAMAGE as error:
            raise UnreadableRow(f"the definition cannot be read: {why(error)}") from None
        if (definition.scope_id, definition.job_id) != (scope_id, job_id):
            raise UnreadableRow("the definition cannot be read: it names another job")
        return self._remember(number, definition)

    def key_of(self, number: int) -> JobKey:
        """The job that a definition belongs to, also where the definition cannot be decoded."""
        key = self._keys.get(number)
        if key is None:
            row = self.db.execute(_BODY, (number,)).fetchone()
            if row is None:
                raise UnreadableRow("the row of the definition is missing")
            key = self._keys[number] = JobKey(*row[1:])
        return key

    def _remember(self, number: int, definition: JobDefinition) -> JobDefinition:
        if len(self._definitions) >= _REMEMBERED:
            self._definitions.clear()
            self._keys.clear()
        self._definitions[number] = definition
        self._keys[number] = JobKey(definition.scope_id, definition.job_id)
        return definition

    def store_definition(self, lane_id: int, definition: JobDefinition) -> int:
        body = dump(definition, JobDefinition)
        made = self.db.execute("INSERT INTO rota_definition (job, is_current, body) VALUES (?, 1, ?)", (lane_id, body))
        assert made.lastrowid is not None
        self._remember(made.lastrowid, definition)
        return made.lastrowid

    # --- small things ---

    def one(self, query: str, parameters: Iterable[Any] = ()) -> Any:
        """The only column of the only row, or None."""
        row = self.db.execute(query, tuple(parameters)).fetchone()
        return None if row is None else row[0]
