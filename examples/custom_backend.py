"""A backend of one's own: jobs that survive a restart, in one file, for one process.

It subclasses the port and keeps its state in the in-process backend. Every call that changes something is appended to
a journal, with the time at which it happened, before it is answered; opening the file performs the journal again. That
works because calls of the port are values, and because a store decides nothing that needs cron, handlers or chance.

What it does not do: share its file with another process, or ever shorten it (it grows with every look for work).
`custom_backend_contract.py` is its contract run.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import tempfile
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from rota import (
    Capability,
    Clock,
    HandlerRegistry,
    JobContext,
    JobRun,
    Manual,
    Precision,
    RunState,
    Scheduler,
    StoreUnavailable,
    SystemClock,
)
from rota.backend import (
    Backend,
    Census,
    Claimed,
    ClaimRequest,
    Due,
    Enqueue,
    EventRef,
    Fact,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    LockGrant,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Renewal,
    RunQuery,
    SetAside,
    Settlement,
    Standing,
    StoredJob,
)
from rota.run import Decision
from rota_backends.inprocess import InProcessBackend

P = ParamSpec("P")
R = TypeVar("R")


class _Then:
    """The clock of the state: now, or the instant at which a journalled call happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.instant: datetime | None = None

    def now(self) -> datetime:
        return self.instant or self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, delta: timedelta) -> None:
        await self._clock.sleep(delta)


class JournalBackend(Backend):
    """Jobs, runs and keys outlive the process; leases end by themselves, as after any crash (LEASE-3)."""

    name = "journal"
    capabilities = Capability.DURABLE | Capability.PUSH_WAKEUP
    patience = timedelta(0)  # a file that cannot be written does not come back by waiting

    def __init__(
        self, path: Path, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE, sync: bool = True
    ) -> None:
        super().__init__(clock=clock, precision=precision)
        self._path = path
        self._sync = sync  # False survives the process, not the machine
        self._opened = 0
        self._file: BinaryIO | None = None
        self._then = _Then(clock or SystemClock())
        self._state = InProcessBackend(clock=self._then, precision=precision)

    # --- the journal ---

    async def open(self) -> None:
        if self._opened == 0:
            self._file = self._path.open("a+b")
            await self._perform_again(self._file)
        self._opened += 1

    async def close(self) -> None:
        self._opened -= 1
        if self._opened == 0 and self._file is not None:
            self._file.close()
            self._file = None

    async def _perform_again(self, file: BinaryIO) -> None:
        """Rebuild the state; a record half written when the machine stopped was never answered: cut it off."""
        self._state = InProcessBackend(clock=self._then, precision=self._precision)
        file.seek(0)
        good = 0
        while True:
            try:
                self._then.instant, method, args, options = pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                break
            await getattr(self._state, method)(*args, **options)
            good = file.tell()
        self._then.instant = None
        file.truncate(good)

    @property
    def _precision(self) -> Precision:
        return Precision.SECOND if Capability.SECOND_PRECISION in self.capabilities else Precision.MINUTE

    async def _write(
        self, method: Callable[Concatenate[InProcessBackend, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """Change the state and journal the change. Nothing suspends between the two, so nobody sees one alone."""
        if self._file is None:
            raise StoreUnavailable("the journal is not open")
        self._then.instant = self._then.now()
        try:
            answer = await method(self._state, *args, **options)
            self._append((self._then.instant, method.__name__, args, options))
        finally:
            self._then.instant = None
        return answer

    def _append(self, record: tuple[Any, ...]) -> None:
        assert self._file is not None
        try:
            self._file.write(pickle.dumps(record))
            self._file.flush()
            if self._sync:
                os.fsync(self._file.fileno())
        except OSError as error:  # the state is ahead of the file: only opening it again tells the truth
            self._file.close()
            self._file = None
            raise StoreUnavailable(f"the journal cannot be written ({error.strerror})") from error

    # --- what changes something ---

    async def tell_facts(self) -> None:
        await self._write(InProcessBackend.tell_facts)

    async def register(self, batch: Sequence[Registration]) -> list[Registered]:
        return await self._write(InProcessBackend.register, batch)

    async def remove(self, key: JobKey, request_id: UUID) -> bool:
        return await self._write(InProcessBackend.remove, key, request_id)

    async def pause(self, change: PauseChange) -> bool:
        return await self._write(InProcessBackend.pause, change)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await self._write(InProcessBackend.fire, batch)

    async def enqueue(self, batch: Sequence[Enqueue], *, within: object | None = None) -> list[UUID | Refusal]:
        return await self._write(InProcessBackend.enqueue, batch)

    async def notify(self, batch: Sequence[EventRef]) -> list[list[UUID | Refusal]]:
        return await self._write(InProcessBackend.notify, [_plain(each) for each in batch])

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._write(InProcessBackend.claim, request)

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        return await self._write(InProcessBackend.renew, node, leases)

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        return await self._write(InProcessBackend.settle, batch, then, keep=keep)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await self._write(InProcessBackend.hand_back, leases, leaving=leaving)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return await self._write(InProcessBackend.cancel, run_id, scope_id, reason, request_id)

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        return await self._write(InProcessBackend.discard, run_id, scope_id, request_id)

    async def prune(self, request: Prune) -> int:
        return await self._write(InProcessBackend.prune, request)

    async def relay(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[SetAside] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        return await self._write(
            InProcessBackend.relay, node_id, done=done, set_aside=set_aside, skip=skip, limit=limit, lease=lease
        )

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await self._write(InProcessBackend.lock, name, node_id, ttl)

    async def bookmark(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        return await self._write(InProcessBackend.bookmark, name, expected, value)

    # --- what only looks ---

    async def now(self) -> datetime:
        return await self._state.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._state.subscribe(wake)

    async def standing(self, key: JobKey) -> Standing:
        return await self._state.standing(key)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        return await self._state.jobs(query)

    async def due(self, limit: int) -> Due:
        return await self._state.due(limit)

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return await self._state.runs(query)

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        return await self._state.decisions(key, limit=limit)

    async def census(self, scope_id: str | None = None) -> Census:
        return await self._state.census(scope_id)


def _plain(ref: EventRef) -> EventRef:
    """A fact computes its event when read; the journal keeps what was read."""
    event = ref.event.as_event() if isinstance(ref.event, Fact) else ref.event
    return EventRef(event, ref.memory, ref.lane_limit, ref.max_depth)


# --- using it --------------------------------------------------------------------------------------------------------

handlers = HandlerRegistry()


@handlers.register("count")
async def count(ctx: JobContext) -> None:
    print(f"run {ctx.run_id} of {ctx.job_id}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.journal")
        async with Scheduler(JournalBackend(path), handlers, concurrency=0) as client:  # triggers, works nothing
            await client.schedule(count.job("counter", Manual()))
            run_id = await client.trigger_once("counter")

        # Another process, later: the run is still there, and somebody has a slot for it now.
        async with Scheduler(JournalBackend(path), handlers, requires=Capability.DURABLE) as scheduler:
            run = await scheduler.wait(run_id)
            assert run.state is RunState.SUCCEEDED

        async with Scheduler(JournalBackend(path), handlers, concurrency=0) as client:
            again = await client.get_run(run_id)
            assert again == run, "history is the same, to the microsecond"
            print(f"{run.state} at {run.ended_at}, also when read from the journal")


if __name__ == "__main__":
    asyncio.run(main())
