"""Durable backends that break one rule each: the suite has to catch every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, FireResult, Firing, Settlement
from rota.lifecycle import succeeded
from rota.run import RunState
from rota_backends.sqlite import SqliteBackend, claiming, endings, occurrences, settling
from rota_backends.sqlite.session import Session

_file_letter = endings.file_letter

Settled = tuple[list[bool], Claimed | None]


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


class AcknowledgesFirst(SqliteBackend):
    """(b) A run counts as done when it is handed out."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._acknowledged(await super().claim(request), request)

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        settled, claimed = await super().settle(batch, then, keep=keep)
        if claimed is not None and then is not None:
            claimed = await self._acknowledged(claimed, then)
        return settled, claimed

    async def _acknowledged(self, claimed: Claimed, request: ClaimRequest) -> Claimed:
        if claimed.claims:
            await super().settle([succeeded(claim, request.node_id) for claim in claimed.claims])
        return claimed


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


class NodeClock(SqliteBackend):
    """(d) Leases by the clock of whoever looks: correct as long as all clocks agree."""


class LettersLater(SqliteBackend):
    """(e) The dead letter is filed in a transaction of its own, after the run's end."""

    async def open(self) -> None:
        endings.file_letter = lambda session, seq: None
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
        query = "UPDATE rota_job SET next_due = ? WHERE scope_id = ? AND job_id = ? AND next_due IS NOT NULL"
        session.db.execute(query, (int(firing.expected_due.timestamp() * 1_000_000), *firing.key))
    return occurrences.fire(session, list(batch))


class LosesFacts(SqliteBackend):
    """(g) The facts of every seventh settlement are forgotten."""

    _count = 0

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        return await super().settle([self._forgetful(each) for each in batch], then, keep=keep)

    def _forgetful(self, new: Settlement) -> Settlement:
        self._count += 1
        return evolve(new, facts=()) if self._count % 7 == 0 else new


class Impatient(SqliteBackend):
    """(h) A lease counts as expired after half its time."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await super().claim(evolve(request, lease=request.lease / 4))

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        shorter = None if then is None else evolve(then, lease=then.lease / 4)
        return await super().settle(batch, shorter, keep=keep)

    async def renew(self, node: Any, leases: Any) -> Any:
        return await super().renew(node, [ref._replace(lease=ref.lease / 4) for ref in leases])


BROKEN: dict[str, type[SqliteBackend]] = {
    "unfenced": Unfenced,
    "acknowledges-first": AcknowledgesFirst,
    "reads-then-writes": ReadsThenWrites,
    "node-clock": NodeClock,
    "letters-later": LettersLater,
    "no-occurrence-key": NoOccurrenceKey,
    "loses-facts": LosesFacts,
    "impatient": Impatient,
}
