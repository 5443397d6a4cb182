"""The audit: every write, denial and failure, as an event and in the log, never with a payload."""

from __future__ import annotations

import asyncio
import json
import logging
from enum import Enum
from uuid import UUID

from rota.access.context import AccessContext
from rota.clock import Clock
from rota.errors import ScheduleError, without_text
from rota.events.checks import PlatformEvent
from rota.events.hooked import is_cancelled_from_outside
from rota.events.store import EventStore
from rota.logger import safe_logger
from rota.model.validation import check_name, kind_of

log = safe_logger("rota.access")

ACCESS_MODULE = "_platform.access"
_MAX_LENGTH = 500  # characters of a target


class Verdict(Enum):
    """How an action ended; the value is the event type."""

    ALLOWED = "JobActionAllowed"
    DENIED = "JobActionDenied"
    FAILED = "JobActionFailed"


class Audit:
    """Records the actions of one context."""

    def __init__(self, context: AccessContext, events: EventStore | None, clock: Clock) -> None:
        self._context = context
        self._events = events
        self._clock = clock

    async def record(self, verdict: Verdict, action: str, target: object, detail: str | None = None) -> None:
        """Write one entry about `target`, a job id or run id. Errors of the event store are raised."""
        level = logging.INFO if verdict is Verdict.ALLOWED else logging.WARNING
        context, name = self._context, _text(target)
        log.log(level, "%s: %r %s %r in scope %r", verdict.value, context.subject, action, name, context.scope_id)
        if self._events is not None:
            await self._events.write(self._event(verdict, action, target, detail))

    async def record_afterwards(self, verdict: Verdict, action: str, target: object, detail: str | None = None) -> None:
        """The same after the action: an error of the event store is only logged. The entry is written even if the
        caller is cancelled meanwhile."""
        try:
            await asyncio.shield(self.record(verdict, action, target, detail))
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            name = _text(target)
            log.error("the audit of %r on %r could not be written", action, name, exc_info=without_text(error))

    def _event(self, verdict: Verdict, action: str, target: object, detail: str | None) -> PlatformEvent:
        context = self._context
        data = {
            "action": action,
            "target": _text(target),
            "subject": context.subject,
            "scope_id": context.scope_id,
            "roles": sorted(role.value for role in context.roles),
            "synthetic": context.synthetic,
            "detail": detail,
        }
        return PlatformEvent(
            ACCESS_MODULE, verdict.value, context.scope_id, json.dumps(data).encode(),
            subject=_subject(target), occurred_at=self._clock.now(),
        )  # fmt: skip


def _text(target: object) -> str:
    """A target of any type as text: at most 500 characters, a run id, or the name of its class. No method of the value
    is called: it could raise."""
    if issubclass(type(target), str):
        return str.__str__(target)[:_MAX_LENGTH]  # pyright: ignore[reportArgumentType]
    return str(target) if type(target) is UUID else f"<{kind_of(target)}>"


def _subject(target: object) -> str | None:
    """None for a target that cannot be a job or a run."""
    try:
        return check_name("subject", str(target) if type(target) is UUID else target)
    except ScheduleError:
        return None
