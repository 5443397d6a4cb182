"""SQLite backends that break one rule inside the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, FireResult, Firing, Settlement
from rota.model.run import RunState
from rota_backends.sqlite import SqliteBackend, claiming, finishing, occurrences, settling
from rota_backends.sqlite.session import Session
from tests.faults.broken import Settled

_file_letter = finishing.file_letter


class Unfenced(SqliteBackend):
    """(a) Whoever settles a leased run is believed, whatever his token."""

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        def work_it(session: Session) -> Settled:
            return settling.settle(session, [_with_newest_token(session, each) for each in batch], then, keep)

        return await self._store.write(work_it)


def _with_newest_token(session: Session, new: Settlement) -> Settlement:
    lane = session.lane(new.key)
    return new if lane is None or new.only_if_expired else evolve(new, token=lane.token)


class ReadsThenWrites(SqliteBackend):
    """(c) What is ready is read first and taken later, without looking again."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        ready: list[tuple[int, int]] = await self._store.read(
            lambda session: session.db.execute("SELECT id, head FROM rota_lane WHERE ready_at IS NOT NULL").fetchall()
        )
        if ready:
            await asyncio.sleep(0.02)
        return await self._store.write(lambda session: _take(session, ready, request))


def _take(session: Session, ready: list[tuple[int, int]], request: ClaimRequest) -> Claimed:
    for lane_id, head in ready:
        lane = session.lane_by_id(lane_id)
        if lane.head == head and lane.lease_until is not None:
            lane.free()
            lane.pinned, lane.ready_at = 0, session.now
    session.write_lanes()
    return claiming.claim(session, request)


class LettersLater(SqliteBackend):
    """(e) The dead letter is filed in a transaction of its own, after the run's end."""

    async def open(self) -> None:
        finishing.file_letter = lambda session, seq: None
        await super().open()

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        answer = await super().settle(batch, then, keep=keep)
        dead = [each.run_id.bytes for each in batch if each.state is RunState.DEAD]
        if dead:
            await asyncio.sleep(0.3)
            await self._store.write(lambda session: _file(session, dead))
        return answer


def _file(session: Session, dead: list[bytes]) -> None:
    for run_id in dead:
        seq = session.one("SELECT seq FROM rota_history WHERE run_id = ? AND letter = 1", (run_id,))
        if seq is not None and session.one("SELECT 1 FROM rota_letter WHERE seq = ?", (seq,)) is None:
            _file_letter(session, seq)


class NoOccurrenceKey(SqliteBackend):
    """(f) Whoever thinks an occurrence is due fires it."""

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await self._store.write(lambda session: _fire(session, batch))


def _fire(session: Session, batch: Sequence[Firing]) -> list[FireResult]:
    for firing in batch:
        query = "UPDATE rota_job SET next_due = ?, revision = ? WHERE scope_id = ? AND job_id = ?"
        due = int(firing.expected_due.timestamp() * 1_000_000)
        session.db.execute(query, (due, firing.revision, *firing.key))
    return occurrences.fire(session, list(batch))


CLASSES: dict[str, type[SqliteBackend]] = {
    "unfenced": Unfenced,
    "reads-then-writes": ReadsThenWrites,
    "letters-later": LettersLater,
    "no-occurrence-key": NoOccurrenceKey,
}
