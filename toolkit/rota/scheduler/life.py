"""How a scheduler starts its node, works until a signal, and leaves (LEASE-5)."""

from __future__ import annotations

import asyncio
import signal
from asyncio import _get_running_loop
from collections.abc import Callable
from datetime import timedelta
from secrets import randbits

from rota.backend.messages import ADMINS_TOLD, FACTS_WANTED
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.clock import at_work
from rota.errors import NotOpen, type_name
from rota.events import EventStore, JobNotifyEventStore
from rota.events.notify import Notify
from rota.logger import safe_logger
from rota.node.runtime import Runtime
from rota.node.shutdown import leave
from rota.node.sweep import job_store_id

log = safe_logger("rota")

_LAST_EVENTS = 3.0  # seconds that leaving waits for the last events and notices to be delivered


class Life:
    """From entering to leaving. `make` builds the runtime of a node, given the id of the job store."""

    def __init__(
        self,
        backend: Backend,
        call: RetryingCalls,
        make: Callable[[int], Runtime],
        *,
        events: EventStore | None,
        has_notifier: bool,
        notify: Notify,
        drain_timeout: timedelta | None,
    ) -> None:
        self._backend = backend
        self._call = call
        self._make = make
        self._events = events
        self._has_notifier = has_notifier
        self._notify = notify
        self._drain_timeout = drain_timeout
        self._is_entered = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._signals: list[signal.Signals] = []
        self.hurry = asyncio.Event()  # set by a second signal: running handlers are cancelled
        self.runtime: Runtime | None = None

    def open(self) -> Runtime:
        """The runtime of the running node, for calls made in its event loop."""
        if self.runtime is None:
            raise NotOpen("the scheduler is not open: use it inside `async with scheduler:`")
        if (running := _get_running_loop()) is not self._event_loop and running is not None:
            raise NotOpen(
                "the scheduler was entered in another event loop: call it there, for instance with "
                "asyncio.run_coroutine_threadsafe(…, loop), or enter another scheduler in this one"
            )
        return self.runtime

    # --- starting ---

    async def enter(self) -> None:
        """Open the backend and start the node."""
        if self._is_entered:
            raise NotOpen("this scheduler is entered already; make another one for another node")
        self._is_entered = True
        self._event_loop = asyncio.get_running_loop()
        self.hurry = asyncio.Event()
        try:
            await self._call(self._backend.open)
            try:
                self.runtime = await self._start()
            except BaseException:
                await self._backend.close()
                raise
        except BaseException:
            self._is_entered = False
            raise

    async def _start(self) -> Runtime:
        job_store = 0
        if self._events is not None:
            await self._call(self._backend.setting, FACTS_WANTED, 0, 1)
            job_store = await self._call(job_store_id, self._backend, 1 + randbits(62))
        if self._has_notifier:
            await self._call(self._backend.setting, ADMINS_TOLD, 0, 1)
        runtime = self._make(job_store)
        if runtime.works:
            await self._announce(runtime)
        for loop in runtime.loops:
            loop.start()
        runtime.stop_waking = self._backend.subscribe(runtime.wake)
        if isinstance(self._events, JobNotifyEventStore):
            self._events.attach(self._notify, job_store)
        return runtime

    async def _announce(self, runtime: Runtime) -> None:
        try:
            await self._call(runtime.heartbeat.renew)
        except BaseException:  # the store may have registered the node although the call failed
            await self._sign_off(runtime)
            raise

    # --- leaving ---

    async def leave(self, runtime: Runtime, *, is_cancelled: bool = False) -> None:
        """Drain the node, deliver the last events, close the backend. After Ctrl-C handlers are cancelled at once."""
        try:
            if runtime.works:
                await leave(runtime.node, timedelta(0) if is_cancelled else self._drain_timeout, self.hurry)
            await asyncio.gather(*(relay.loop.finish(_LAST_EVENTS) for relay in runtime.relays))
        finally:  # also if leaving is cancelled, even twice: nothing may run after the scheduler is closed
            # Keep a virtual clock from advancing until the node has left.
            with at_work(self._backend.clock, "a node that signs off"):
                await asyncio.shield(self._close(runtime))

    async def _close(self, runtime: Runtime) -> None:
        try:
            await self._halt(runtime)
            if runtime.relays:
                await self._sign_off(runtime)
        finally:
            try:
                await self._backend.close()
            except Exception as error:  # leaving never raises because the store is gone (SAFE-2)
                log.warning("closing the store failed (%s); the node has left", type_name(error))
            finally:
                self._remove_signal_handlers()  # last: a signal while the store closes must not kill the process

    async def _sign_off(self, runtime: Runtime) -> None:
        try:
            await self._backend.hand_back([], leaving=runtime.node.node_id)
        except Exception as error:  # leaving never raises because the store is gone (SAFE-2)
            log.warning(
                "this node could not sign off in the store (%s); other nodes count it as alive until its lease ends",
                type_name(error),
            )

    async def _halt(self, runtime: Runtime) -> None:
        """Stop every loop and slot without calling the store."""
        runtime.stop_waking()
        if isinstance(self._events, JobNotifyEventStore):
            self._events.detach(self._notify)
        for loop in runtime.loops:
            await loop.close()
        await runtime.node.close()
        self.runtime = None
        self._is_entered = False

    async def abandon(self) -> None:
        """End as a killed process would."""
        if self.runtime is not None:
            await self._halt(self.runtime)
            await self._backend.close()

    # --- signals ---

    async def until_signalled(self) -> None:
        """Wait for SIGINT or SIGTERM. A second one sets `hurry`."""
        stop = asyncio.Event()

        def on_signal() -> None:
            if stop.is_set():
                log.warning("second signal: running handlers are cancelled")
                self.hurry.set()
            stop.set()

        loop = asyncio.get_running_loop()
        self.hurry.clear()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
            self._signals.append(number)
        await stop.wait()

    def _remove_signal_handlers(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._signals.clear()
