"""The trail: every write and every denial, as an event and in the log, never with a payload."""

from __future__ import annotations

import asyncio
import json
import logging
from enum import Enum

from rota.access.context import AccessContext
from rota.clock import Clock
from rota.errors import ScheduleError, without_text
from rota.events.hooked import is_cancelled_from_outside
from rota.events.store import EventStore
from rota.logger import safe_logger
from rota.model.event import Event
from rota.model.validation import check_name

log = safe_logger("rota.access")

ACCESS_MODULE = "_platform.access"


class Verdict(Enum):
    """What became of an action; the value is the event type."""

    ALLOWED = "JobActionAllowed"
    DENIED = "JobActionDenied"
    FAILED = "JobActionFailed"


class Audit:
    """Writes the trail of one context."""

    def __init__(self, context: AccessContext, events: EventStore | None, clock: Clock) -> None:
        self._context = context
        self._events = events
        self._clock = clock

    async def record(self, verdict: Verdict, action: str, target: str, detail: str | None = None) -> None:
        """One entry about `target`, a job id or run id. Raises what the event store raises."""
        level = logging.INFO if verdict is Verdict.ALLOWED else logging.WARNING
        who = self._context
        log.log(level, "%s: %r %s %r in scope %r", verdict.value, who.subject, action, target, who.scope_id)
        if self._events is not None:
            await self._events.write(self._event(verdict, action, target, detail))

    async def record_afterwards(self, verdict: Verdict, action: str, target: str, detail: str | None = None) -> None:
        """The same, where it is too late to refuse: a failing event store is logged, the action stands. Who acts may be
        cancelled meanwhile, the trail is written."""
        try:
            await asyncio.shield(self.record(verdict, action, target, detail))
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            log.error("the audit of %r on %r could not be written", action, target, exc_info=without_text(error))

    def _event(self, verdict: Verdict, action: str, target: str, detail: str | None) -> Event:
        who = self._context
        data = {
            "action": action,
            "target": target,
            "subject": who.subject,
            "scope_id": who.scope_id,
            "roles": sorted(role.value for role in who.roles),
            "synthetic": who.synthetic,
            "detail": detail,
        }
        return Event(
            ACCESS_MODULE, verdict.value, who.scope_id, json.dumps(data).encode(),
            subject=_subject(target), occurred_at=self._clock.now(),
        )  # fmt: skip


def _subject(target: str) -> str | None:
    """A denied call may well name a job that could not exist."""
    try:
        return check_name("subject", target)
    except ScheduleError:
        return None
