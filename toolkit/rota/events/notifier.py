"""Notifies admins of dead letters (RETRY-5)."""

from __future__ import annotations

from typing import Protocol

from rota.logger import safe_logger
from rota.model.run import JobRun

log = safe_logger("rota.notifier")


class Notifier(Protocol):
    """Notifies the admins of a scope; called at least once per dead letter, after it was stored."""

    async def dead_letter(self, run: JobRun) -> None:
        """A run has become a dead letter. If this raises it is called again later."""
        ...


class LoggingNotifier:
    """Logs names and numbers, never a payload or an error's text, which may quote a payload (OPS-3)."""

    async def dead_letter(self, run: JobRun) -> None:
        """Log one line."""
        log.error(
            "dead letter: job %r in scope %r, run %s, handler %r, after %d attempt(s): %s",
            run.job_id, run.scope_id, run.run_id, run.handler_name, run.attempt, run.reason,
        )  # fmt: skip
