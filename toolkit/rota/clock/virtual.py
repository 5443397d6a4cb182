"""A clock that drives everything without waiting (TIME-1, TIME-2).

The virtual clock knows every *activity* (a loop's turn, a handler's attempt) and whether it is at work, at rest, or
parked in `clock.sleep()` or a `clock.gate()`. Time moves only when nothing is at work, and only to the next instant
somebody waits for.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from itertools import count
from typing import Protocol

from rota.clock.protocol import Clock
from rota.errors import NotSettled, ScheduleError
from rota.model.validation import check_instant, check_kind

_PATIENCE = timedelta(seconds=5)
_LOOK = timedelta(milliseconds=250)  # patience is counted in looks: a machine that stood still is one of them
_MOST_ROUNDS = 20_000  # at one instant: work that never ends without time is an error, not a hang
_YIELDS = 4  # a cancelled waiter needs two turns of the event loop to become busy again


class Activity:
    """Something that may be at work. Without a virtual clock nobody looks at it."""

    __slots__ = ("_clock", "_parked", "_running", "label")

    def __init__(self, clock: VirtualClock | None, label: Callable[[], str]) -> None:
        self._clock = clock
        self._running = False
        self._parked = 0
        self.label = label

    def begin(self) -> None:
        if self._clock is not None:
            self._running = True
            self._clock._changed(self, not self._parked)

    def end(self) -> None:
        if self._clock is not None:
            self._running = False
            self._clock._changed(self, False)

    def park(self) -> None:
        self._parked += 1
        if self._clock is not None:
            self._clock._changed(self, False)

    def unpark(self) -> None:
        self._parked -= 1
        if self._clock is not None:
            self._clock._changed(self, self._running and not self._parked)

    def progressed(self) -> None:
        """Something was done that may let others go on."""
        if self._clock is not None:
            self._clock._progress += 1


current_activity: ContextVar[Activity | None] = ContextVar("rota_activity", default=None)


def watch(clock: Clock, label: Callable[[], str]) -> Activity:
    """An activity the clock waits for, if it is a virtual one."""
    return Activity(clock if isinstance(clock, VirtualClock) else None, label)


@contextmanager
def at_work(clock: Clock, label: str) -> Generator[None]:
    """A virtual clock waits for what is done inside, or for what that waits for on the clock."""
    activity = watch(clock, lambda: label)
    before = current_activity.set(activity)
    activity.begin()
    try:
        yield
    finally:
        activity.end()
        current_activity.reset(before)


class Phase(IntEnum):
    """The order in which things happen at one instant: runs end before occurrences of that instant are decided."""

    HEARTBEAT = 0
    WORK = 1
    TICK = 2


class Participant(Protocol):
    """A loop that takes part in virtual time."""

    phase: Phase
    wakes_at: timedelta | None

    def poke(self) -> None:
        """Look again now; be busy at once."""


class _Waiter:
    """One parked wait: of the current activity, until it is released or gives up."""

    __slots__ = ("_activity", "_parked", "future")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._activity = current_activity.get()
        self._parked = self._activity is not None
        if self._activity is not None:
            self._activity.park()

    def release(self) -> None:
        """Be busy from this moment on, not from when the event loop gets round to it."""
        self._unpark()
        if not self.future.done():
            self.future.set_result(None)

    async def wait(self) -> None:
        try:
            await self.future
        finally:
            self._unpark()

    def _unpark(self) -> None:
        if self._parked and self._activity is not None:
            self._parked = False
            self._activity.unpark()


class Gate:
    """Holds handlers until it is opened; known to the virtual clock, so that time can pass meanwhile."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._waiters: list[_Waiter] = []
        self._held = 0
        self._parked: list[Activity] = []  # those of held threads

    @property
    def waiting(self) -> int:
        """How many are held now."""
        return len(self._waiters) + self._held

    async def wait(self) -> None:
        """Wait until the gate is open."""
        if self._open.is_set():
            return
        waiter = _Waiter()
        self._waiters.append(waiter)
        try:
            await waiter.wait()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait in a thread, for a sync handler; `loop` is the scheduler's."""
        activity = current_activity.get()
        self._held += 1
        try:
            if activity is not None:
                loop.call_soon_threadsafe(self._park, activity)
            self._open.wait()
        finally:
            self._held -= 1

    def _park(self, activity: Activity) -> None:
        if not self._open.is_set():  # it may have been let through before the event loop heard of it
            activity.park()
            self._parked.append(activity)

    def open(self) -> None:
        """Let everybody through, now and later; they are busy from this moment on."""
        self._open.set()
        for waiter in self._waiters:
            waiter.release()
        parked, self._parked = self._parked, []
        for activity in parked:
            activity.unpark()

    def close(self) -> None:
        """Hold those who come from now on."""
        self._open.clear()


class VirtualClock:
    """Time that moves only when told to.

    `advance(delta)` goes through every instant at which something is due, in order, and lets all that can happen there
    happen. `step(delta)` moves the wall clock alone, either way. Several nodes and several backends may share one.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC) if start is None else check_instant("start", start)
        self._elapsed = timedelta(0)
        self._sleepers: list[tuple[timedelta, int, _Waiter]] = []
        self._order = count()
        self._participants: list[Participant] = []
        self._busy: set[Activity] = set()
        self._changes = 0
        self._change = asyncio.Event()
        self._progress = 0
        self._advancing = asyncio.Lock()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    async def sleep(self, delta: timedelta) -> None:
        if check_kind("delta", delta, timedelta) <= timedelta(0):
            await asyncio.sleep(0)
            return
        waiter = _Waiter()
        heapq.heappush(self._sleepers, (self._elapsed + delta, next(self._order), waiter))
        await waiter.wait()

    @property
    def sleeping(self) -> int:
        """How many wait in `sleep` for time to pass."""
        return sum(not waiter.future.done() for _, _, waiter in self._sleepers)

    def gate(self) -> Gate:
        """A gate that handlers may wait at."""
        return Gate()

    def step(self, delta: timedelta) -> None:
        """The wall clock jumps; nothing else happens until `advance`."""
        self._now += self._checked(delta)

    async def advance(self, delta: timedelta = timedelta(0)) -> None:
        """Let `delta` pass; raises `NotSettled` if a handler neither ends nor waits on this clock (TIME-2)."""
        if self._checked(delta) < timedelta(0):
            raise ScheduleError("delta", "time does not go backwards; step() moves the wall clock")
        async with self._advancing:
            target = self._elapsed + delta
            while True:
                await self._settle()
                instant = self._earliest()
                if instant is None or instant > target:
                    break
                self._move(instant)
            if target > self._elapsed:
                self._move(target)
                await self._settle()

    # --- for the scheduler's loops ---

    def join(self, participant: Participant) -> None:
        self._participants.append(participant)

    def leave(self, participant: Participant) -> None:
        if participant in self._participants:
            self._participants.remove(participant)

    def after(self, delta: timedelta | None) -> timedelta | None:
        """The instant `delta` from now on the clock's own scale."""
        return None if delta is None else self._elapsed + max(delta, timedelta(0))

    # --- inside ---

    def _checked(self, delta: timedelta) -> timedelta:
        try:
            return self._now + check_kind("delta", delta, timedelta) - self._now
        except OverflowError:
            raise ScheduleError("delta", "the wall clock must stay within the years 1 to 9999") from None

    def _changed(self, activity: Activity, is_busy: bool) -> None:
        (self._busy.add if is_busy else self._busy.discard)(activity)
        self._changes += 1
        if not self._busy:
            self._change.set()

    def _earliest(self) -> timedelta | None:
        while self._sleepers and self._sleepers[0][2].future.done():
            heapq.heappop(self._sleepers)
        planned = [each.wakes_at for each in self._participants if each.wakes_at is not None]
        if self._sleepers:
            planned.append(self._sleepers[0][0])
        return min((max(at, self._elapsed) for at in planned), default=None)

    def _move(self, instant: timedelta) -> None:
        self._now += instant - self._elapsed
        self._elapsed = instant
        while self._sleepers and self._sleepers[0][0] <= instant:
            heapq.heappop(self._sleepers)[2].release()
        for each in self._participants:
            if each.wakes_at is not None and each.wakes_at <= instant:
                each.wakes_at = None  # its plan is due: it is poked in its phase, and makes a new one

    async def _settle(self) -> None:
        await self._until_idle()
        for _ in range(_MOST_ROUNDS):
            for phase in Phase:
                if await self._round(phase):
                    break
            else:
                return
        raise NotSettled(_PATIENCE, ["work that repeats itself at one instant"])

    async def _round(self, phase: Phase) -> bool:
        before = self._progress
        for each in list(self._participants):
            if each.phase is phase:
                each.poke()
        await self._until_idle()
        return self._progress != before

    async def _until_idle(self) -> None:
        seen, looks = -1, 0
        idle = 0
        while idle < _YIELDS:
            if not self._busy:
                idle += 1
                await asyncio.sleep(0)
                continue
            idle = 0
            if self._changes != seen:
                seen, looks = self._changes, 0
            elif looks * _LOOK >= _PATIENCE:
                raise NotSettled(_PATIENCE, sorted(activity.label() for activity in self._busy))
            await self._next_change()
            looks += 1

    async def _next_change(self) -> None:
        self._change = asyncio.Event()  # of this event loop: a clock may outlive one
        for _ in range(3):  # most turns end within a few rounds of the event loop: cheaper than a timer
            await asyncio.sleep(0)
            if not self._busy:
                return
        try:
            await asyncio.wait_for(self._change.wait(), _LOOK.total_seconds())
        except TimeoutError:
            return
