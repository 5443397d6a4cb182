"""The context that is passed to a handler together with its payload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator
from datetime import datetime, timedelta
from uuid import UUID

from rota.access import AccessContext
from rota.backend.messages import Claim
from rota.handlers.services import Services
from rota.model.definition import Trigger
from rota.model.event import Event
from rota.model.run import Cause
from rota.model.validation import check_duration
from rota.node.attempt import RunningAttempt

log = logging.getLogger("rota.run")


class _Done:
    """An awaitable that is already done, for sync handlers."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds run and job to every record."""


class JobContext:
    """One attempt, as its handler sees it. Each attempt gets a new context; most values are computed when read."""

    __slots__ = ("_held", "_services")

    def __init__(self, held: RunningAttempt, services: Services) -> None:
        self._held = held
        self._services = services

    @property
    def _claim(self) -> Claim:
        return self._held.claim

    @property
    def job_id(self) -> str:
        return self._claim.key.job_id

    @property
    def scope_id(self) -> str:
        return self._claim.key.scope_id

    @property
    def handler_name(self) -> str:
        return self._claim.definition.handler_name

    @property
    def queue(self) -> str:
        return self._claim.queue

    @property
    def run_id(self) -> UUID:
        return self._claim.run_id

    @property
    def attempt(self) -> int:
        """1, 2, 3 …: the same number as in history and events (RETRY-1)."""
        return self._claim.attempt

    @property
    def trigger(self) -> Trigger:
        return self._claim.definition.trigger

    @property
    def cause(self) -> Cause:
        return self._claim.cause

    @property
    def due(self) -> datetime | None:
        """The planned instant of a cron run, not the moment it started (CRON-5)."""
        return self._claim.due

    @property
    def event(self) -> Event | None:
        """The event that caused the run (EVENT-4)."""
        return self._claim.event

    @property
    def access(self) -> AccessContext:
        """The identity the job acts for: its creator and scope, synthetic, without roles (ID-3)."""
        definition = self._claim.definition
        return AccessContext(definition.created_by, definition.scope_id, frozenset(), synthetic=True)

    @property
    def services(self) -> Services:
        return self._services

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        fields = {"job_id": self.job_id, "scope_id": self.scope_id, "run_id": str(self.run_id), "attempt": self.attempt}
        return _RunLogger(log, fields)

    @property
    def fencing_token(self) -> int:
        """Strictly increasing per job: write it along with your data, and reject writes with an older one (LEASE-1)."""
        return self._claim.token

    @property
    def deadline(self) -> datetime | None:
        """When the attempt times out."""
        timeout = self._claim.definition.timeout
        return None if timeout is None else self._claim.started_at + timeout

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop; a handler in a thread has to check it from time to time."""
        return self._held.should_stop()

    def extend_lease(self, delta: timedelta) -> Awaitable[None]:
        """Make the lease last at least `delta` from now, even without renewals.

        In an async handler: `await ctx.extend_lease(delta)`. In a sync handler call it without `await`; it returns when
        it is done.
        """
        check_duration("delta", delta)
        work = self._held.holder.extend_lease(self._held, delta)
        home = self._held.holder.event_loop
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run_coroutine_threadsafe(work, home).result()
            return _Done()
        # A sync handler may run an event loop of its own in its thread, but only the scheduler's may call the store.
        return work if running is home else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))
