"""The notifier that logs. Rules: RETRY-5, OPS-3."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from rota.events import LoggingNotifier, Notifier
from rota.model.run import Cause, JobRun, RunState


async def test_the_logging_notifier_names_the_run_and_quotes_no_error(caplog: pytest.LogCaptureFixture) -> None:
    run = JobRun(
        run_id=UUID(int=7),
        job_id="daily",
        scope_id="acme",
        handler_name="summary",
        state=RunState.DEAD,
        cause=Cause.CRON,
        due=None,
        event_id=None,
        replay_of=None,
        covers_from=None,
        covers_to=None,
        missed_count=0,
        queued_at=datetime(2026, 1, 1, tzinfo=UTC),
        started_at=None,
        ended_at=None,
        next_attempt_at=None,
        attempt=3,
        attempts=(),
        error="could not send to hunter2",
        reason=None,
        records_processed=None,
        node_id=None,
    )
    notifier: Notifier = LoggingNotifier()
    await notifier.dead_letter(run)
    for word in ("daily", "acme", "summary", str(run.run_id), "3 attempt"):
        assert word in caplog.text
    assert "hunter2" not in caplog.text
