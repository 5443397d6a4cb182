"""Faults of stores that several processes share: each is right as long as one process is alone."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, Due, FireResult, Firing, JobKey, LeaseRef, NewRun, Refusal, Settlement
from rota.model.capability import Capability, Precision
from rota_backends.sqlite import SqliteBackend, schema, settling
from rota_backends.sqlite.codes import micros
from rota_backends.sqlite.session import Session
from rota_contracts import BackendHarness, Harness
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness


def shared(kind: Callable[..., SqliteBackend], precision: Precision = Precision.MINUTE) -> MakeHarness:
    """A file of its own, opened by whatever process."""

    def make() -> Harness:
        folder = tempfile.mkdtemp(prefix="rota-fault-")
        elsewhere = partial(kind, Path(folder, "jobs.db"), precision=precision, synchronous="OFF")
        harness = BackendHarness(lambda clock: elsewhere(clock=clock), elsewhere=elsewhere)
        weakref.finalize(harness, shutil.rmtree, folder, ignore_errors=True)
        return harness

    return make


class Impatient(SqliteBackend):
    """A lease is over after a quarter of its time."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await super().claim(evolve(request, lease=request.lease / 4))


class Unfenced(SqliteBackend):
    """Whoever settles a leased run is believed, whatever his token."""

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        return await self._store.write(
            lambda session: settling.settle(session, [_with_newest_token(session, each) for each in batch], then, keep)
        )


def _with_newest_token(session: Session, new: Settlement) -> Settlement:
    lane = session.lane(new.key)
    return new if lane is None or new.only_if_expired else evolve(new, token=lane.token)


class LeavesALease(SqliteBackend):
    """A hand-back ends the lease, and that is all: whoever comes counts the attempt as lost."""

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        def end(session: Session) -> None:
            session.db.execute("UPDATE rota_lane SET lease_until = ? WHERE lease_until IS NOT NULL", (session.now,))

        await self._store.write(end)


class NodeClock(SqliteBackend):
    """Promised to many hosts, with the clock of whoever looks."""

    capabilities = SqliteBackend.capabilities | Capability.DISTRIBUTED


class DecidesAlone(SqliteBackend):
    """Every process has a calendar of its own: what it has not decided itself is due."""

    def __init__(self, path: Path, **options: object) -> None:
        super().__init__(path, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self._decided: dict[JobKey, int] = {}

    async def due(self, limit: int) -> Due:
        await self._store.write(self._turn_back)
        return await super().due(limit)

    def _turn_back(self, session: Session) -> None:
        rows = session.db.execute("SELECT scope_id, job_id, decided FROM rota_job WHERE decided IS NOT NULL").fetchall()
        for scope_id, job_id, decided in rows:
            if self._decided.get(JobKey(scope_id, job_id)) != decided:
                row = (decided, scope_id, job_id)
                session.db.execute("UPDATE rota_job SET next_due = ? WHERE scope_id = ? AND job_id = ?", row)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        results = await super().fire(batch)
        for firing, result in zip(batch, results, strict=True):
            if result is not FireResult.STALE:
                self._decided[firing.key] = micros(firing.decided)
        return results


class StartsAfresh(SqliteBackend):
    """Each process that starts plans every job anew, from this minute on."""

    async def open(self) -> None:
        await super().open()

        def plan(session: Session) -> None:
            minute = session.now - session.now % 60_000_000
            session.db.execute("UPDATE rota_job SET next_due = ? WHERE next_due IS NOT NULL", (minute,))

        await self._store.write(plan)


class KeysOfTheProcess(SqliteBackend):
    """Each process remembers the keys it has seen."""

    def __init__(self, path: Path, **options: object) -> None:
        super().__init__(path, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self._seen: dict[tuple[JobKey, str], UUID] = {}

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return [await self._enqueue(each) for each in batch]

    async def _enqueue(self, new: NewRun) -> UUID | Refusal:
        if new.idempotency_key is not None:
            first = self._seen.setdefault((new.key, new.idempotency_key.key), new.run_id)
            if first != new.run_id:
                return first
        (answer,) = await super().enqueue([evolve(new, idempotency_key=None)])
        return answer


class ChecksThenCreates(SqliteBackend):
    """Whoever finds no tables makes them, a moment later."""

    async def open(self) -> None:
        await asyncio.to_thread(_make_tables, self._path)
        await super().open()


def _make_tables(path: Path) -> None:
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        if not schema.is_ready(db, str(path)):
            time.sleep(1)  # sleep: the window of the race
            schema.create(db)
    finally:
        db.close()


class TakesWhatIsTaken(SqliteBackend):
    """A claim does not look whether another process holds the lane."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        def free(session: Session) -> None:
            rows = session.db.execute("SELECT id FROM rota_lane WHERE lease_until IS NOT NULL AND node != ?",
                                      (request.node_id,)).fetchall()  # fmt: skip
            for (lane_id,) in rows:
                lane = session.lane_by_id(lane_id)
                lane.free()
                lane.pinned, lane.ready_at = 0, session.now

        await self._store.write(free)
        return await super().claim(request)


_MINUTE = of(
    "CRON-4",
    "two_processes_do_not_fire_a_minute_twice",
    "four_processes_do_not_fire_a_minute_twice",
    "eight_processes_do_not_fire_a_minute_twice",
)

FAULTS = [
    Fault(
        "leases of a process end early",
        "LEASE-3",
        of("LEASE-3", "a_killed_process_does_not_keep_its_run_nor_lose_it_early"),
        shared(Impatient),
    ),
    Fault(
        "a stopped process settles what is another's",
        "LEASE-1",
        of("LEASE-1", "a_process_that_slept_does_not_settle_the_run_of_its_heir"),
        shared(Unfenced),
    ),
    Fault(
        "a process that leaves only ends its leases",
        "LEASE-5",
        of("LEASE-5", "a_process_that_leaves_does_not_make_others_wait_for_its_lease"),
        shared(LeavesALease),
    ),
    Fault(
        "every node has a time of its own",
        "LEASE-6",
        (
            *of("LEASE-6", "a_fast_clock_does_not_end_the_leases_of_others"),
            *of("LEASE-6", "a_slow_clock_does_not_keep_the_leases_of_others"),
            *of("CRON-5", "a_fast_clock_does_not_fire_early"),
        ),
        shared(NodeClock),
    ),
    Fault("every process has a calendar of its own", "CRON-4", _MINUTE, shared(DecidesAlone)),
    Fault(
        "every process has a calendar of seconds",
        "CRON-4",
        of("CRON-4", "processes_do_not_fire_a_second_twice"),
        shared(DecidesAlone, Precision.SECOND),
    ),
    Fault(
        "every process plans anew",
        "CRON-4",
        of("CRON-4", "a_restart_in_the_fire_minute_does_not_fire_again"),
        shared(StartsAfresh),
    ),
    Fault(
        "every process remembers keys of its own",
        "KEY-4",
        of("KEY-4", "one_key_does_not_make_two_runs_in_two_processes"),
        shared(KeysOfTheProcess),
    ),
    Fault(
        "whoever finds no tables makes them",
        "REG-1",
        of("REG-1", "eight_first_processes_do_not_stand_in_each_others_way"),
        shared(ChecksThenCreates),
    ),
    Fault(
        "a claim takes what another process holds",
        "LEASE-1",
        of("LEASE-1", "a_run_is_not_handed_to_two_processes"),
        shared(TakesWhatIsTaken),
    ),
]
