"""Waits that a virtual clock knows: in `clock.sleep()` and at a `clock.gate()`."""

from __future__ import annotations

import asyncio
import threading

from rota.clock.activity import Activity, current_activity


class Waiter:
    """One wait, during which the current activity is parked, until it is released or cancelled."""

    __slots__ = ("_activity", "_parked", "future")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._activity = current_activity.get()
        self._parked = self._activity is not None
        if self._activity is not None:
            self._activity.park()

    def release(self) -> None:
        """End the wait. The activity is busy from this call on, before the event loop resumes it."""
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
    """Makes handlers wait until it is opened; the virtual clock knows these waits, so time can pass meanwhile."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._waiters: list[Waiter] = []
        self._threads = 0
        self._parked: list[Activity] = []  # of the waiting threads

    @property
    def waiting(self) -> int:
        """The number of handlers that wait now."""
        return len(self._waiters) + self._threads

    async def wait(self) -> None:
        """Wait until the gate is open."""
        if self._open.is_set():
            return
        waiter = Waiter()
        self._waiters.append(waiter)
        try:
            await waiter.wait()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait in a thread, for a sync handler; `loop` is the scheduler's."""
        activity = current_activity.get()
        self._threads += 1
        try:
            if activity is not None:
                loop.call_soon_threadsafe(self._park, activity)
            self._open.wait()
        finally:
            self._threads -= 1

    def _park(self, activity: Activity) -> None:
        if not self._open.is_set():  # the gate may have been opened before this callback ran
            activity.park()
            self._parked.append(activity)

    def open(self) -> None:
        """End all waits, and let later handlers pass; the waiting handlers are busy from this call on."""
        self._open.set()
        for waiter in self._waiters:
            waiter.release()
        parked, self._parked = self._parked, []
        for activity in parked:
            activity.unpark()

    def close(self) -> None:
        """Make handlers wait again from now on."""
        self._open.clear()
