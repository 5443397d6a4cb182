"""ACCESS-2: runs, statuses and health reports are JSON-ready, in the codec's forms, and never hold a payload."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from rota import (
    Attempt,
    AttemptOutcome,
    Cause,
    Check,
    Cron,
    Health,
    HealthReport,
    IdempotencyKey,
    JobDefinition,
    JobRun,
    JobStatus,
    Manual,
    OnEvent,
    RetryPolicy,
    RunState,
)
from rota.codec import to_dict
from rota.model.redaction import redacted_status

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
SECRET = b"s3cret"
RUN = JobRun(
    run_id=UUID(int=1), job_id="job", scope_id="default", handler_name="handler", state=RunState.RETRYING,
    cause=Cause.CRON, due=NOW, event_id=None, replay_of=UUID(int=2), covers_from=NOW, covers_to=NOW, missed_count=3,
    queued_at=NOW, started_at=NOW, ended_at=None, next_attempt_at=NOW, attempt=1,
    attempts=(Attempt(1, NOW, NOW, AttemptOutcome.FAILED, "ValueError", "node-1", 7),), error="ValueError", reason=None,
    records_processed=None, node_id=None,
)  # fmt: skip
REPORT = HealthReport.of([Check("store", Health.OK, "3 jobs"), Check("loops", Health.DEGRADED)])
TRIGGERS = [Cron("0 8 * * *", "Europe/Berlin", grace=timedelta(hours=1)), OnEvent("orders", "Placed"), Manual()]


def _status(trigger: Any) -> JobStatus:
    key = IdempotencyKey("key", timedelta(days=1))
    definition = JobDefinition("job", "handler", trigger, RetryPolicy(), key, payload=SECRET, timeout=timedelta(90))
    return JobStatus(definition, NOW, None, 2, UUID(int=3), NOW, None, None)


@pytest.mark.parametrize("value", [RUN, REPORT])
def test_the_forms_are_those_of_the_codec(value: Any) -> None:
    assert value.to_json() == to_dict(value)
    assert json.loads(json.dumps(value.to_json())) == value.to_json()


def test_a_run_reads_as_one_would_write_it() -> None:
    found = RUN.to_json()
    assert (found["run_id"], found["state"], found["due"]) == (str(RUN.run_id), "retrying", "2026-01-01T12:30:00+00:00")
    assert found["attempts"][0]["outcome"] == "failed"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_status_has_the_size_of_the_payload_and_never_the_payload(trigger: Any) -> None:
    status = _status(trigger)
    found = status.to_json()
    expected = to_dict(status)
    del expected["definition"]["payload"]
    assert found == {**expected, "definition": {**expected["definition"], "payload_size": len(SECRET)}}
    assert "s3cret" not in json.dumps(found)
    assert "czNjcmV0" not in json.dumps(found)  # base64


def test_a_redacted_status_gives_the_same() -> None:
    status = _status(Manual())
    assert redacted_status(status).to_json() == status.to_json()
