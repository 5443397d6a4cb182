"""What crosses the port shows the length of a payload, never the payload (ACCESS-2)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from rota import Cause, Event, JobDefinition, Manual
from rota.backend import Claim, JobKey, NewRun, Registration
from rota_backends.cas import Put, Versioned
from rota_backends.cas.records import Lane, Run, text_of

SECRET = b"SECRET"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = JobKey("default", "job")
JOB = JobDefinition("job", "handler", Manual(), payload=SECRET)
EVENT = Event("m", "t", data=SECRET)


@pytest.mark.parametrize(
    "value",
    [
        NewRun(KEY, uuid4(), Cause.MANUAL, 1, payload=SECRET),
        Claim(KEY, uuid4(), JOB, SECRET, Cause.EVENT, 1, 1, NOW, NOW, NOW, event=EVENT),
        Registration(JOB, 0, uuid4()),
        Put("key", 0, SECRET),
        Versioned("key", 1, SECRET),
        Run(uuid4(), 1, *KEY, text_of(JOB), Cause.EVENT, NOW, payload=SECRET, event=EVENT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repr_shows_only_the_length_of_a_payload(value: object) -> None:
    assert "SECRET" not in repr(value)
    assert "<6 bytes>" in repr(value)


def test_a_lane_does_not_show_the_definition_it_keeps_as_text() -> None:
    assert "U0VDUkVU" not in repr(Lane(*KEY, definition=text_of(JOB)))  # base64


def test_no_payload_is_shown_as_none() -> None:
    assert "payload=None" in repr(NewRun(KEY, uuid4(), Cause.MANUAL, 1))
