"""Every value of the model survives JSON, and a wrong one is refused with its field. Rules: ID-3, REG-5."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backend import Fact, FactKind
from rota.codec import from_dict, to_dict
from rota.cron import Cron, Misfire, Overlap
from rota.errors import InvalidCron, ScheduleError
from rota.model.capability import Precision
from rota.model.definition import (
    IdempotencyKey,
    JobDefinition,
    Manual,
    OnEvent,
    RetryPolicy,
    ScheduleDiff,
)
from rota.model.event import Event
from rota.model.health import Check, Health, HealthReport
from rota.model.run import (
    Attempt,
    AttemptOutcome,
    Cause,
    Decision,
    DecisionKind,
    JobRun,
    JobStatus,
    Retention,
    RunState,
)

names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=200)
texts = st.text(st.characters(exclude_categories=["Cs"]))
counts = st.integers(0, 2**63 - 1)  # as far as every store can count
instants = st.datetimes(timezones=st.just(UTC))
durations = st.timedeltas(timedelta(microseconds=1), timedelta(days=36_525))
maybe = st.none()

crons = st.builds(
    Cron,
    st.sampled_from(["* * * * *", "@daily", "0 8 * * MON-FRI", "*/5 3,4 1-7 JAN *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.sampled_from(Misfire),
    maybe | durations,
    st.sampled_from(Overlap),
)
triggers = crons | st.builds(OnEvent, names, names, maybe | names) | st.just(Manual())
retries = st.builds(
    RetryPolicy,
    maybe | st.integers(1, 1000),
    st.lists(durations, min_size=1, max_size=4).map(tuple),
    st.floats(0, 1),
    maybe | durations,
)
definitions = st.builds(
    JobDefinition,
    names,
    names,
    triggers,
    retries,
    maybe | st.builds(IdempotencyKey, names, durations),
    st.sampled_from(Precision),
    st.binary(),
    names,
    names,
    maybe | durations,
    names,
    st.integers(-(2**31), 2**31 - 1),
)
events = st.builds(
    Event,
    names,
    names,
    names,
    st.binary(),
    maybe | names,
    names,
    maybe | instants,
    maybe | st.uuids(),
    st.integers(0, 99),
)
attempts = st.builds(
    Attempt,
    counts,
    instants,
    maybe | instants,
    maybe | st.sampled_from(AttemptOutcome),
    maybe | texts,
    texts,
    counts,
)
runs = st.builds(
    JobRun,
    run_id=st.uuids(),
    job_id=names,
    scope_id=names,
    handler_name=names,
    state=st.sampled_from(RunState),
    cause=st.sampled_from(Cause),
    due=maybe | instants,
    event_id=maybe | names,
    replay_of=maybe | st.uuids(),
    covers_from=maybe | instants,
    covers_to=maybe | instants,
    missed_count=counts,
    queued_at=instants,
    started_at=maybe | instants,
    ended_at=maybe | instants,
    next_attempt_at=maybe | instants,
    attempt=counts,
    attempts=st.lists(attempts, max_size=3).map(tuple),
    error=maybe | texts,
    reason=maybe | texts,
    records_processed=maybe | counts,
    node_id=maybe | names,
)
statuses = st.builds(
    JobStatus,
    definitions,
    maybe | instants,
    maybe | texts,
    counts,
    maybe | st.uuids(),
    maybe | instants,
    maybe | instants,
    maybe | instants,
)
decisions = st.builds(
    Decision, st.sampled_from(DecisionKind), instants, instants, counts, maybe | st.uuids(), maybe | texts
)
retentions = st.builds(Retention, st.integers(1, 10**9), durations, maybe | durations)
checks = st.builds(Check, texts, st.sampled_from(Health), texts)
reports = st.lists(checks, max_size=3).map(HealthReport.of)
diffs = st.builds(ScheduleDiff, *[st.lists(names, max_size=2).map(tuple)] * 4)


@given(definitions | events | runs | attempts | statuses | decisions | retentions | reports | diffs)
def test_every_value_of_the_model_survives_json_exactly(value: Any) -> None:
    text = json.dumps(to_dict(value), allow_nan=False)
    assert from_dict(json.loads(text), type(value)) == value


def test_a_fact_is_written_as_the_event_that_it_is() -> None:
    job = JobDefinition("job", "handler", Manual())
    fact = Fact(1, FactKind.REGISTERED, datetime(2026, 1, 1, tzinfo=UTC), job, revision=1)
    assert from_dict(to_dict(fact, Event), Event) == fact.as_event()


def _with(**changes: Any) -> dict[str, Any]:
    return to_dict(JobDefinition("job", "handler", Cron("* * * * *"))) | changes  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (_with(job_id=""), "job_id"),
        (_with(job_id=5), "job_id"),
        (_with(priority="high"), "priority"),
        (_with(precision="hour"), "precision"),
        (_with(payload="***"), "payload"),
        (_with(retry={"backoff": ["soon"]}), "retry.backoff[0]"),
        (_with(retry={"backoff": []}), "retry.backoff"),
        (_with(trigger={"kind": "never"}), "trigger"),
        (_with(trigger={"expression": "* * * * *"}), "trigger"),
        (_with(trigger=[]), "trigger"),
        (_with(surprise=1), "JobDefinition"),
        ([], "JobDefinition"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(data: Any, field: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        from_dict(data, JobDefinition)
    assert caught.value.field == field


def test_a_wrong_cron_expression_still_points_at_the_character() -> None:
    with pytest.raises(InvalidCron) as caught:
        from_dict(_with(trigger={"kind": "cron", "expression": "* 25 * * *"}), JobDefinition)
    assert caught.value.position == 2
