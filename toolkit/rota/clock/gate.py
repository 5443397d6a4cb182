"""Waits that a virtual clock knows about: of its sleepers, and of handlers held at a gate."""

from __future__ import annotations

import asyncio
import threading

from rota.clock.activity import Activity, current_activity


class Waiter:
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
        self._waiters: list[Waiter] = []
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
