"""Warnings about stored jobs that will not run; each is logged once."""

from __future__ import annotations

from rota.backend.messages import Census, JobKey
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS, RetryingCalls
from rota.handlers import HandlerRegistry
from rota.logger import safe_logger
from rota.model.definition import JobDefinition, OnEvent
from rota.node.sweep import has_had_event_store

log = safe_logger("rota")

_MAX_REMEMBERED = 10_000  # names remembered


class Warnings:
    """Checks each job after it was stored."""

    def __init__(self, backend: Backend, call: RetryingCalls, handlers: HandlerRegistry, has_events: bool) -> None:
        self._backend = backend
        self._call = call
        self._handlers = handlers
        self._gets_events = has_events
        self._warned: set[JobKey] = set()
        self._on_other_nodes: set[str] = set()
        self.waits_for_events: JobKey | None = None  # the first job that gets no events, for `health()`

    def notified(self) -> None:
        """The application calls `notify`, so events arrive without an event store."""
        self._gets_events, self.waits_for_events = True, None

    def unscheduled(self, key: JobKey) -> None:
        """Forget a removed job."""
        if key == self.waits_for_events:
            self.waits_for_events = None

    async def scheduled(self, definition: JobDefinition, is_worker: bool) -> None:
        """Warn about a job that gets no events, or whose handler no node has."""
        key = JobKey(definition.scope_id, definition.job_id)
        if is_worker and isinstance(definition.trigger, OnEvent) and await self._gets_no_events(key):
            self.waits_for_events = self.waits_for_events or key
            log.warning(
                "job %r runs on events, and no node has an event store: it will not run. "
                "Pass Scheduler(events=JobNotifyEventStore(…)), or call scheduler.notify",
                definition.job_id,
            )  # fmt: skip
        name = definition.handler_name
        if name not in self._handlers.names() and not await self._is_on_another_node(name):
            log.warning(
                "job %r in scope %r is stored, but neither this scheduler nor any running node has its handler %r: "
                "register it with @handlers.register(%r), or start a node that has it, before the job is due",
                definition.job_id, definition.scope_id, name, name,
            )  # fmt: skip

    async def _gets_no_events(self, key: JobKey) -> bool:
        """True if no node of the store ever had an event store; only once per job."""
        if self._gets_events or not self._is_first(key):
            return False
        try:
            return not await self._call(has_had_event_store, self._backend)
        except STORE_ERRORS:
            return False

    def _is_first(self, key: JobKey) -> bool:
        if key in self._warned:
            return False
        if len(self._warned) >= _MAX_REMEMBERED:
            self._warned.clear()
        self._warned.add(key)
        return True

    async def _is_on_another_node(self, handler_name: str) -> bool:
        """Also true if the store does not answer: a missing warning is better than an error."""
        if handler_name in self._on_other_nodes:
            return True
        try:
            census: Census = await self._call(self._backend.census)
        except STORE_ERRORS:
            return True
        self._on_other_nodes = {name for node in census.nodes for name in node.handlers}
        return handler_name in self._on_other_nodes
