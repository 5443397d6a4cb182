"""One repeated activity of a node: a turn, a rest, the next turn. After errors the rests grow, with jitter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import NamedTuple

from tenacity import wait_random_exponential

from rota.backend.retrying import STORE_ERRORS
from rota.backend.waits import seconds_after
from rota.clock import Clock, Driver, Phase, current_activity, driver_of, watch
from rota.errors import OutcomeUnknown, type_name, without_text
from rota.logger import safe_logger
from rota.node.abandon import abandon

log = safe_logger("rota")

_QUICK_RETRIES = 2
_PARTING = 5.0  # seconds that a store may take to cancel a call
_LATE = 1.0  # seconds: shorter delays are normal
_REST_AFTER_ERROR = wait_random_exponential(multiplier=0.05, max=5)


class Turn(NamedTuple):
    """The result of a turn: whether it did anything, how long the loop may rest (None: until it is woken), and whether
    it called the store: only an answer shows that the store is back."""

    progressed: bool
    rest: timedelta | None
    asked: bool = True


class NoAnswer(Exception):
    """Something other than the job store did not answer; `name` says what, for the log."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Loop:
    """Repeats `turn` when its rest is over or when it is woken, at least every `poll`."""

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[Turn]],
        clock: Clock,
        *,
        phase: Phase = Phase.WORK,
        poll: timedelta = timedelta(seconds=1),
        error_rest: timedelta = timedelta(seconds=5),
    ) -> None:
        self.name = name
        self.phase = phase
        self.wakes_at: timedelta | None = None
        self.failures = 0  # in a row
        self._turn_began: float | None = None  # in real time, as health needs it
        self._wakes_by: float | None = None  # while it rests
        self._late = (0.0, 0.0)  # by how many seconds it woke too late, and when
        self._turn = turn
        self._driver = driver_of(clock)
        self._poll = poll
        self._error_rest = error_rest  # the longest rest between two tries
        self._wake = asyncio.Event()
        self._activity = watch(clock, lambda: f"loop {name}")
        self._is_finishing = False
        self._is_closed = False
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.poke()
        if self._driver is not None:
            self._driver.join(self)
        self._runner = asyncio.create_task(self._run(), name=f"rota {self.name}")

    async def close(self) -> None:
        if self._driver is not None:
            self._driver.leave(self)
        self._is_closed = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait({self._runner}, timeout=_PARTING)
            if not self._runner.done():
                abandon(self._runner)
                log.error("the %s loop: a call ignores its cancellation and is left running", self.name)
            self._runner = None
        self._activity.end()

    async def finish(self, patience: float) -> None:
        """Take turns until one finds nothing left to do, for at most `patience` real seconds; then close."""
        if self._runner is not None:
            self._is_finishing = True
            self.poke()
            await asyncio.wait({self._runner}, timeout=patience)
        await self.close()

    @property
    def is_alive(self) -> bool:
        """False once its task has ended."""
        return self._runner is not None and not self._runner.done()

    @property
    def in_turn_for(self) -> float:
        """Seconds since its turn began; 0 while it rests."""
        return 0.0 if self._turn_began is None else monotonic() - self._turn_began

    @property
    def late(self) -> tuple[float, float]:
        """By how many seconds it last woke too late from a rest, and when: other code blocked the event loop. While the
        loop is overdue, the delay until now."""
        now = monotonic()
        if self._wakes_by is not None and now - self._wakes_by > _LATE:
            return now - self._wakes_by, now
        return self._late

    def poke(self) -> None:
        """Take a turn now. A closed loop takes none: a virtual clock would wait for that turn for ever."""
        if not self._is_closed:
            self._activity.begin()
            self._wake.set()

    def wake_in(self, delta: timedelta) -> None:
        """Do not rest longer than `delta` from now (a virtual clock pokes the loop anyway)."""
        if self._driver is None and delta < self._poll:
            asyncio.get_running_loop().call_later(max(delta.total_seconds(), 0.0), self._wake.set)

    def look_again(self) -> None:
        """Take a turn now, because something may be due earlier (a virtual clock pokes the loop anyway)."""
        if self._driver is None:
            self._wake.set()

    async def _run(self) -> None:
        current_activity.set(self._activity)
        while True:
            self._wake.clear()
            is_last = self._is_finishing
            self._turn_began = monotonic()
            try:
                turn = await self._take_turn()
            finally:
                self._turn_began = None
            if turn.progressed:
                self._activity.progressed()
            elif is_last:
                return
            if self._is_closed:  # the turn swallowed the cancellation
                return
            await self._rest(turn.rest)

    async def _take_turn(self) -> Turn:
        try:
            turn = await self._turn_with_retries()
        except asyncio.CancelledError as error:
            if self._runner is None or self._runner.cancelling():
                raise
            return self._failed(error, "a call was cancelled from inside")  # the loop itself was not cancelled
        except STORE_ERRORS as error:
            return self._failed(error, "the store does not answer")
        except NoAnswer as error:
            return self._failed(error.__cause__ or error, f"{error.name} does not answer")
        except Exception as error:
            if self.failures == 0:
                log.error("the %s loop failed", self.name, exc_info=without_text(error))
            return self._failed(error, "a turn failed")
        if self.failures and turn.asked:
            log.info("the %s loop works again, after %d failures in a row", self.name, self.failures)
            self.failures = 0
        return turn

    async def _turn_with_retries(self) -> Turn:
        """Repeat a failed turn at once: mostly that succeeds. Rests are for a longer outage."""
        for _ in range(_QUICK_RETRIES):
            try:
                return await self._turn()
            except OutcomeUnknown:
                self._activity.progressed()  # the call may have happened, and let others go on
            except STORE_ERRORS:
                continue
        return await self._turn()

    def _failed(self, error: BaseException, what: str) -> Turn:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # at 1, 2, 4, 8 …: an outage must not flood the log
            log.warning("the %s loop: %s (%s, %d in a row); it tries again",
                        self.name, what, type_name(error), self.failures)  # fmt: skip
        if self.failures == 1:
            return Turn(True, timedelta(0))  # repeat a single failure at once: a late tick would be a misfire
        rest = timedelta(seconds=seconds_after(_REST_AFTER_ERROR, min(self.failures, 20)))
        return Turn(False, min(rest, self._error_rest))

    async def _rest(self, rest: timedelta | None) -> None:
        if self._driver is not None:
            await self._rest_virtually(self._driver, rest)
            return
        seconds = self._poll.total_seconds() if rest is None else min(rest, self._poll).total_seconds()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        handle = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        self._wakes_by = monotonic() + seconds
        try:
            await self._wake.wait()
        finally:
            handle.cancel()
            self._late = self.late
            self._wakes_by = None

    async def _rest_virtually(self, driver: Driver, rest: timedelta | None) -> None:
        if rest is not None and rest <= timedelta(0):
            rest = None  # there is work at this instant: the clock pokes the loop as long as anything progresses
        self.wakes_at = driver.after(rest)
        if not self._wake.is_set():
            self._activity.end()
        await self._wake.wait()
        self._activity.begin()
