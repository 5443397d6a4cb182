"""A clock for tests whose time passes without waiting (TIME-1, TIME-2).

The virtual clock knows every *activity* (a loop's turn, a handler's attempt) and whether it is at work, at rest, or
parked in `clock.sleep()` or at a `clock.gate()`. Time moves only when nothing is at work, and only to the next instant
that something waits for.
"""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from rota.clock.activity import Activity, Participant, Phase
from rota.clock.gate import Gate, Waiter
from rota.errors import NotSettled, ScheduleError
from rota.model.validation import check_instant, check_kind

_PATIENCE = timedelta(seconds=5)
_LOOK = timedelta(milliseconds=250)  # patience is counted in looks: a suspended machine costs only one of them
_MOST_ROUNDS = 20_000  # at one instant: work that repeats itself without end raises an error
_YIELDS = 4  # a cancelled waiter needs two turns of the event loop to become busy again


class VirtualClock:
    """A clock that moves only when `advance` or `step` is called.

    `advance(delta)` visits every instant at which something is due, in order, and waits until all work of that instant
    is done. `step(delta)` moves only the wall clock, forwards or backwards. Nodes and backends may share one clock.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC) if start is None else check_instant("start", start)
        self._elapsed = timedelta(0)
        self._sleepers: list[tuple[timedelta, int, Waiter]] = []
        self._order = count()
        self._participants: list[Participant] = []
        self._busy: set[Activity] = set()
        self._changes = 0
        self._change = asyncio.Event()
        self._moves = 0
        self._advancing = asyncio.Lock()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    async def sleep(self, delta: timedelta) -> None:
        if check_kind("delta", delta, timedelta) <= timedelta(0):
            await asyncio.sleep(0)
            return
        waiter = Waiter()
        heapq.heappush(self._sleepers, (self._elapsed + delta, next(self._order), waiter))
        await waiter.wait()

    @property
    def sleeping(self) -> int:
        """The number of calls of `sleep` that wait now."""
        return sum(not waiter.future.done() for _, _, waiter in self._sleepers)

    def gate(self) -> Gate:
        """A gate at which handlers can wait."""
        return Gate()

    def step(self, delta: timedelta) -> None:
        """Move only the wall clock; nothing else happens until `advance`."""
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

    # --- for loops and activities: see `Driver` ---

    def join(self, participant: Participant) -> None:
        self._participants.append(participant)

    def leave(self, participant: Participant) -> None:
        if participant in self._participants:
            self._participants.remove(participant)

    def after(self, delta: timedelta | None) -> timedelta | None:
        return None if delta is None else self._elapsed + max(delta, timedelta(0))

    def changed(self, activity: Activity, is_busy: bool) -> None:
        (self._busy.add if is_busy else self._busy.discard)(activity)
        self._changes += 1
        if not self._busy:
            self._change.set()

    def progressed(self) -> None:
        self._moves += 1

    # --- inside ---

    def _checked(self, delta: timedelta) -> timedelta:
        try:
            return self._now + check_kind("delta", delta, timedelta) - self._now
        except OverflowError:
            raise ScheduleError("delta", "the wall clock must stay within the years 1 to 9999") from None

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
                each.wakes_at = None  # due now: it is poked in its phase, and sets the next time itself

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
        before = self._moves
        for each in list(self._participants):
            if each.phase is phase:
                each.poke()
        await self._until_idle()
        return self._moves != before

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
        self._change = asyncio.Event()  # for this event loop: a clock may be used in several
        for _ in range(3):  # most turns end within a few rounds of the event loop: cheaper than a timer
            await asyncio.sleep(0)
            if not self._busy:
                return
        try:
            await asyncio.wait_for(self._change.wait(), _LOOK.total_seconds())
        except TimeoutError:
            return
