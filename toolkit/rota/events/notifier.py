"""Who is told of dead letters (RETRY-5)."""

from __future__ import annotations

from typing import Protocol

from rota.logger import safe_logger
from rota.model.run import JobRun

log = safe_logger("rota.notifier")


class Notifier(Protocol):
    """Tells the admins of a scope; called at least once per dead letter, after it was stored."""

    async def dead_letter(self, run: JobRun) -> None:
        """A run has failed for good. Raising means: try again later."""
        ...


class LoggingNotifier:
    """Tells the log: names and numbers, never a payload, nor an error's text, which may quote one (OPS-3)."""

    async def dead_letter(self, run: JobRun) -> None:
        """One line."""
        log.error(
            "dead letter: job %r in scope %r, run %s, handler %r, after %d attempt(s): %s",
            run.job_id, run.scope_id, run.run_id, run.handler_name, run.attempt, run.reason,
        )  # fmt: skip
