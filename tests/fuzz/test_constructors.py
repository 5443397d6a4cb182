"""SAFE-3, REG-5: a public constructor takes a value that every store can keep, or names the field that is wrong."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import attrs
import pytest

import rota
from rota import (
    AccessContext,
    At,
    Attempt,
    AttemptOutcome,
    Capability,
    Cause,
    Check,
    Cron,
    Event,
    Every,
    Failed,
    Health,
    HealthReport,
    IdempotencyKey,
    InMemoryEventStore,
    JobDefinition,
    JobRun,
    JobStatus,
    LogErrors,
    Manual,
    Misfire,
    OnEvent,
    Overlap,
    Precision,
    Retention,
    Retry,
    RetryPolicy,
    Role,
    RunState,
    ScheduleDiff,
    ScheduleOutcome,
    Services,
    Succeeded,
    TriggerOnce,
    VirtualClock,
)
from rota.codec import from_dict, to_dict
from rota.node.options import Options
from tests.fuzz.calls import Call, arguments, made_or_refused
from tests.fuzz.nasty import NASTY, NOW


def _is(value: Any) -> Callable[[], Any]:
    return lambda: value


def _nothing() -> None:
    return None


def _call(make: Callable[..., Any], *, name: str = "", fields: dict[str, str] | None = None, **arguments: Any) -> Call:
    given = {key: value if callable(value) else _is(value) for key, value in arguments.items()}
    return Call(name or make.__name__, make, given, fields or {})


DEFINITION = JobDefinition("job", "handler", Manual())
ATTEMPT = Attempt(1, NOW, None, None, None, "node", 1)
_CRON: dict[str, Any] = {"expression": "@daily", "misfire": Misfire.ONCE, "grace": _nothing, "overlap": Overlap.SKIP}
_RUN_NAMES: dict[str, Any] = {"job_id": "job", "scope_id": "default", "handler_name": "handler"}
_RUN_TIMES: dict[str, Any] = dict.fromkeys(
    ("due", "covers_from", "covers_to", "started_at", "ended_at", "next_attempt_at"), _nothing
)
_OPTIONS: dict[str, Any] = {
    "queues": _nothing, "concurrency": 1, "lease": timedelta(1), "drain_timeout": _nothing, "retention": Retention(),
    "cancel_grace": timedelta(1), "lane_limit": 1, "event_memory": timedelta(1), "max_depth": 1, "dead_letter_alarm": 1,
    "log_errors": LogErrors.TYPE,
}  # fmt: skip

VALUES = [
    _call(
        Event, source_module="m", event_type="t", scope_id="s", data=b"", subject=_nothing, event_id="1",
        occurred_at=NOW, caused_by=_nothing, depth=0,
    ),
    _call(OnEvent, source_module="m", event_type="t", subject=_nothing),
    _call(Cron, tz="UTC", **_CRON),
    _call(Cron.posix, name="Cron.posix", tz="UTC", **{**_CRON, "expression": "0 0 * * *"}),
    _call(Cron.local, name="Cron.local", **_CRON),
    _call(
        Every, interval=timedelta(minutes=1), start=_nothing, misfire=Misfire.ONCE, grace=_nothing,
        overlap=Overlap.SKIP,
    ),
    _call(At, instant=NOW, misfire=Misfire.ONCE, grace=_nothing),
    _call(RetryPolicy, max_attempts=3, backoff=(timedelta(1),), jitter=0.1, dead_letter_after=_nothing),
    _call(RetryPolicy.fixed, name="RetryPolicy.fixed", seconds=5, attempts=3, fields={"attempts": "max_attempts"}),
    _call(IdempotencyKey, key="k", ttl=timedelta(1)),
    _call(TriggerOnce, job_id="job", payload=_nothing, delay=_nothing, idempotency_key=_nothing, scope_id="s"),
    _call(
        JobDefinition, job_id="job", handler_name="h", trigger=Manual(), retry=RetryPolicy(), idempotency_key=_nothing,
        precision=Precision.MINUTE, payload=b"", scope_id="s", created_by="c", timeout=_nothing, queue="q", priority=0,
    ),
    _call(Succeeded, records_processed=_nothing),
    _call(Failed, reason="r", permanent=False),
    _call(Retry, after=_nothing),
    _call(Retention, runs=1, age=timedelta(1), dead_letters=_nothing),
    _call(AccessContext, subject="s", scope_id="s", roles=frozenset({Role.OWNER}), synthetic=False),
    Call("Check", Check, {"name": _is("n"), "status": _is(Health.OK), "detail": _is("")}),
    _call(HealthReport, status=Health.OK, checks=()),
    _call(HealthReport.of, name="HealthReport.of", checks=()),
    _call(ScheduleDiff, added=(), changed=(), removed=(), unchanged=()),
    _call(
        Attempt, number=1, started_at=NOW, ended_at=_nothing, outcome=AttemptOutcome.LOST, error=_nothing, node_id="n",
        fencing_token=1,
    ),
    _call(
        JobRun, run_id=UUID(int=1), state=RunState.QUEUED, cause=Cause.CRON, event_id=_nothing, replay_of=_nothing,
        missed_count=0, queued_at=NOW, attempt=1, attempts=(ATTEMPT,), error=_nothing, reason=_nothing,
        records_processed=_nothing, node_id=_nothing, **_RUN_NAMES, **_RUN_TIMES,
    ),
    _call(
        JobStatus, definition=DEFINITION, next_due=_nothing, paused=_nothing, queued=0, running=_nothing,
        last_attempt_at=_nothing, last_success_at=_nothing, last_failure_at=_nothing,
    ),
]  # fmt: skip
OBJECTS = [
    _call(VirtualClock, start=NOW),
    _call(Services, offered=_nothing, fields={"offered": "services"}),
    _call(Services.of, name="Services.of", offered=dict, fields={"offered": "services"}),
    _call(InMemoryEventStore, keep=_nothing),
    _call(Options, **_OPTIONS),
]
ENUMS = [
    AttemptOutcome,
    Capability,
    Cause,
    Health,
    LogErrors,
    Misfire,
    Overlap,
    Precision,
    Role,
    RunState,
    ScheduleOutcome,
]
ELSEWHERE = {  # tests/fuzz/test_methods.py has those that take services rather than values
    "HandlerRegistry", "HookedEventStore", "JobApi", "JobNotifyEventStore", "NoScheduler", "Scheduler",
}  # fmt: skip
WITHOUT_ARGUMENTS = {"Manual", "SystemClock"}
MADE_BY_THE_NODE = {"JobContext"}


def _survives(value: Any) -> None:
    """What the toolkit and its stores do with every value."""
    assert repr(value)
    assert value == value
    assert hash(value) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value
    assert attrs.evolve(value) == value
    written = json.loads(json.dumps(to_dict(value)))
    assert from_dict(written, type(value)) == value


@pytest.mark.parametrize(("call", "argument"), arguments(VALUES))
def test_a_value_is_refused_by_field_or_survives_everything(call: Call, argument: str) -> None:
    for label in NASTY:
        value = made_or_refused(call, {argument: label})
        if value is not None:
            _survives(value)


@pytest.mark.parametrize(("call", "argument"), arguments(OBJECTS))
def test_an_object_is_refused_by_field_or_made(call: Call, argument: str) -> None:
    for label in NASTY:
        made = made_or_refused(call, {argument: label})
        assert made is None or repr(made)


@pytest.mark.parametrize("call", VALUES + OBJECTS, ids=lambda call: call.name)
def test_any_mixture_of_wrong_arguments_is_refused_by_one_of_their_fields(call: Call) -> None:
    chance = random.Random(call.name)
    for _ in range(200):
        made = made_or_refused(call, {argument: chance.choice(list(NASTY)) for argument in call.arguments})
        assert made is None or repr(made)


# Python itself writes the value into an error text before the enum is asked.
UNPRINTABLE = {"released memoryview", "10**5000", "-10**5000", "liar", "broken zone", "UUID of another class"}


@pytest.mark.parametrize("kind", ENUMS)
def test_a_value_that_an_enum_lacks_is_refused(kind: type[Enum]) -> None:
    call = Call(kind.__name__, lambda value: kind(value), {"value": _nothing}, {"value": kind.__name__})
    for label in NASTY:
        if not label.startswith("hostile") and label not in UNPRINTABLE:
            made = made_or_refused(call, {"value": label})
            assert made is None or isinstance(made, kind)


def test_every_public_class_is_tried() -> None:
    public = {name for name in rota.__all__ if isinstance(getattr(rota, name), type)}
    errors = {name for name in public if issubclass(getattr(rota, name), Exception)}
    protocols = {name for name in public if getattr(getattr(rota, name), "_is_protocol", False)}
    tried = {call.name.split(".")[0] for call in VALUES + OBJECTS} | {kind.__name__ for kind in ENUMS}
    assert public - errors - protocols == (tried - {"Options"}) | ELSEWHERE | WITHOUT_ARGUMENTS | MADE_BY_THE_NODE
