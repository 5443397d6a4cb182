"""Warnings about jobs that are stored and would not run; each is logged once."""

from __future__ import annotations

import logging

from rota.backend.messages import Census, JobKey
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS, RetryingCalls
from rota.handlers import HandlerRegistry
from rota.model.definition import JobDefinition, OnEvent

log = logging.getLogger("rota")

_MOST = 10_000  # names remembered


class Warnings:
    """Looks at jobs after they were stored."""

    def __init__(self, backend: Backend, call: RetryingCalls, handlers: HandlerRegistry, has_events: bool) -> None:
        self._backend = backend
        self._call = call
        self._handlers = handlers
        self._has_events = has_events
        self._told: set[JobKey] = set()
        self._on_other_nodes: set[str] = set()

    async def scheduled(self, definition: JobDefinition) -> None:
        """Warn of a job that waits for events which do not come, or for a handler that no node has."""
        key = JobKey(definition.scope_id, definition.job_id)
        if isinstance(definition.trigger, OnEvent) and not self._has_events and self._is_first(key):
            log.warning(
                "job %r in scope %r waits for events, and this scheduler has no event store: it runs only for events "
                "given to notify(), or where another node has the store; pass "
                "Scheduler(events=JobNotifyEventStore(store))",
                definition.job_id, definition.scope_id,
            )  # fmt: skip
        name = definition.handler_name
        if name not in self._handlers.names() and not await self._is_on_another_node(name):
            log.warning(
                "job %r in scope %r is stored, but neither this scheduler nor any running node has its handler %r: "
                "register it with @handlers.register(%r), or start a node that has it, before the job is due",
                definition.job_id, definition.scope_id, name, name,
            )  # fmt: skip

    def _is_first(self, key: JobKey) -> bool:
        if key in self._told:
            return False
        if len(self._told) >= _MOST:
            self._told.clear()
        self._told.add(key)
        return True

    async def _is_on_another_node(self, handler_name: str) -> bool:
        """Also true where the store does not answer: a warning is not worth an error."""
        if handler_name in self._on_other_nodes:
            return True
        try:
            census: Census = await self._call(self._backend.census)
        except STORE_ERRORS:
            return True
        self._on_other_nodes = {name for node in census.nodes for name in node.handlers}
        return handler_name in self._on_other_nodes
