"""What is at work, as a clock that is moved by hand has to know it (TIME-2).

Every clock tells the time and sleeps (`Clock`). A clock that is moved by hand offers more (`Driver`): it knows the
loops of a node and every activity, and lets time pass only while nothing is at work. `driver_of` finds out whether a
clock offers that; the other functions here do the right thing for both kinds.
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
    """A loop that takes part in time that is moved by hand."""

    phase: Phase
    wakes_at: timedelta | None

    def poke(self) -> None:
        """Look again now; be busy at once."""


@runtime_checkable
class Driver(Protocol):
    """What a clock that is moved by hand offers besides `Clock`."""

    def join(self, participant: Participant) -> None:
        """From now on poke this loop at every instant."""
        ...

    def leave(self, participant: Participant) -> None:
        """Poke it no more."""
        ...

    def after(self, delta: timedelta | None) -> timedelta | None:
        """The instant `delta` from now, on the scale of `Participant.wakes_at`."""
        ...

    def changed(self, activity: Activity, is_busy: bool) -> None:
        """The activity is at work from now on, or no longer."""
        ...

    def progressed(self) -> None:
        """Something was done that may let others go on at this instant."""
        ...


def driver_of(clock: Clock) -> Driver | None:
    """The clock as a driver, or None where time passes by itself."""
    return clock if isinstance(clock, Driver) else None


def passes_by_itself(clock: Clock | None) -> bool:
    """True unless somebody moves this clock by hand; None is the store's own clock."""
    return not isinstance(clock, Driver)


def real_seconds(clock: Clock, seconds: float) -> float | None:
    """A time limit in real seconds; None (no limit) where time is moved by hand and real seconds mean nothing."""
    return seconds if passes_by_itself(clock) else None


class Activity:
    """Something that may be at work. Without a driver all of this does nothing."""

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
        """Something was done that may let others go on."""
        if self._driver is not None:
            self._driver.progressed()


current_activity: ContextVar[Activity | None] = ContextVar("rota_activity", default=None)


def watch(clock: Clock, label: Callable[[], str]) -> Activity:
    """An activity that the clock waits for, if it is moved by hand."""
    return Activity(driver_of(clock), label)


@contextmanager
def at_work(clock: Clock, label: str) -> Generator[None]:
    """A clock that is moved by hand waits for the block, or for the clock's own sleeps inside it."""
    activity = watch(clock, lambda: label)
    before = current_activity.set(activity)
    activity.begin()
    try:
        yield
    finally:
        activity.end()
        current_activity.reset(before)
