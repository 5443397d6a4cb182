"""Activities that a virtual clock waits for (TIME-2).

Every clock tells the time and sleeps (`Clock`). A virtual clock, whose time the test advances, is also a `Driver`: it
knows the loops of a node and every activity, and lets time pass only while nothing is at work. `driver_of` returns the
clock if it is a driver; the other functions here work with both kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from enum import IntEnum
from typing import Protocol, runtime_checkable

from rota.clock.protocol import Clock


class Phase(IntEnum):
    """The order in which things happen at one instant: runs end before occurrences of that instant are decided."""

    HEARTBEAT = 0
    WORK = 1
    TICK = 2


class Participant(Protocol):
    """A loop that a virtual clock drives."""

    phase: Phase
    wakes_at: timedelta | None

    def poke(self) -> None:
        """Take a turn now; busy from this call on."""


@runtime_checkable
class Driver(Protocol):
    """The additional methods of a virtual clock."""

    def join(self, participant: Participant) -> None:
        """Poke this loop at every instant from now on."""
        ...

    def leave(self, participant: Participant) -> None:
        """Stop poking this loop."""
        ...

    def after(self, delta: timedelta | None) -> timedelta | None:
        """The instant `delta` from now, on the scale of `Participant.wakes_at`."""
        ...

    def changed(self, activity: Activity, is_busy: bool) -> None:
        """The activity has begun or ended its work."""
        ...

    def progressed(self) -> None:
        """Something was done that may give others work at this instant."""
        ...


def driver_of(clock: Clock) -> Driver | None:
    """The clock as a driver, or None if its time passes by itself."""
    return clock if isinstance(clock, Driver) else None


def passes_by_itself(clock: Clock | None) -> bool:
    """False for a virtual clock; None is the store's own clock."""
    return not isinstance(clock, Driver)


def real_seconds(clock: Clock, seconds: float) -> float | None:
    """A time limit in real seconds; None (no limit) for a virtual clock, where real seconds have no meaning."""
    return seconds if passes_by_itself(clock) else None


class Activity:
    """Work that a driver waits for. Without a driver all methods do nothing."""

    __slots__ = ("_driver", "_parked", "_running", "label")

    def __init__(self, driver: Driver | None, label: Callable[[], str]) -> None:
        self._driver = driver
        self._running = False
        self._parked = 0
        self.label = label

    def begin(self) -> None:
        if self._driver is not None:
            self._running = True
            self._driver.changed(self, not self._parked)

    def end(self) -> None:
        if self._driver is not None:
            self._running = False
            self._driver.changed(self, False)

    def park(self) -> None:
        self._parked += 1
        if self._driver is not None:
            self._driver.changed(self, False)

    def unpark(self) -> None:
        self._parked -= 1
        if self._driver is not None:
            self._driver.changed(self, self._running and not self._parked)

    def progressed(self) -> None:
        """Something was done that may give others work."""
        if self._driver is not None:
            self._driver.progressed()


current_activity: ContextVar[Activity | None] = ContextVar("rota_activity", default=None)


def watch(clock: Clock, label: Callable[[], str]) -> Activity:
    """A new activity; a virtual clock waits for it."""
    return Activity(driver_of(clock), label)


@contextmanager
def at_work(clock: Clock, label: str) -> Generator[None]:
    """A virtual clock does not advance while the block runs, except while the block sleeps on the clock."""
    activity = watch(clock, lambda: label)
    before = current_activity.set(activity)
    activity.begin()
    try:
        yield
    finally:
        activity.end()
        current_activity.reset(before)
