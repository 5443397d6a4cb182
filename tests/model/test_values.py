"""REG-5, SAFE-3: values of the wrong type or size are refused by field, with a short error."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from attrs import frozen

from rota import (
    AccessContext,
    Cron,
    Failed,
    IdempotencyKey,
    InMemoryEventStore,
    JobDefinition,
    Manual,
    Misfire,
    OnEvent,
    RetryPolicy,
    Role,
    ScheduleError,
    Services,
    TriggerOnce,
    VirtualClock,
)
from rota.model.redaction import plain

WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (RetryPolicy.fixed, ("x",), {}, "seconds: must be a number of seconds, not str"),
    (RetryPolicy.fixed, (float("nan"),), {}, "seconds: must be a number of seconds from 0 to 100 years"),
    (RetryPolicy.fixed, (10**400,), {}, "seconds: must be a number of seconds from 0 to 100 years"),
    (RetryPolicy.fixed, (-1,), {}, "seconds: must be a number of seconds from 0 to 100 years"),
    (RetryPolicy, (10**5000,), {}, "retry.max_attempts: must be a whole number from 1 to 1000000000"),
    (RetryPolicy, (True,), {}, "retry.max_attempts: must be a whole number from 1 to 1000000000"),
    (RetryPolicy, (), {"backoff": [5]}, "retry.backoff[0]: must be a timedelta, not int"),
    (RetryPolicy, (), {"backoff": []}, "retry.backoff: must have 1 to 1000 entries, not 0"),
    (RetryPolicy, (), {"jitter": float("nan")}, "retry.jitter: must be a number from 0 to 1"),
    (TriggerOnce, ("j", 5), {}, "payload: must be bytes, not int; encode it first, or use binding.job()"),
    (TriggerOnce, ("j",), {"delay": 5}, "delay: must be a timedelta, not int"),
    (TriggerOnce, ("j",), {"idempotency_key": "k"}, "idempotency_key: must be an IdempotencyKey, not str"),
    (IdempotencyKey, ("k", 5), {}, "ttl: must be a timedelta, not int"),
    (AccessContext, ("s", "s", [Role.OWNER], "false"), {}, "synthetic: must be True or False, not str"),
    (AccessContext, ("s", "s", "owner"), {}, "roles: must be a tuple, list or set, not str"),
    (Cron, ("@daily",), {"misfire": "once"}, "trigger.misfire: must be Misfire.ONCE or Misfire.SKIP, not str"),
    (Cron, ("@daily",), {"grace": 5}, "trigger.grace: must be a timedelta, not int"),
    (Cron, ("@daily",), {"tz": 3}, "trigger.tz: must be a string, not int"),
    (Misfire, ("never",), {}, "Misfire: there is no such value; the values are 'once', 'skip'"),
    (VirtualClock, ("x",), {}, "start: must be a datetime with a time zone, not str"),
    (Services.of, (None,), {}, "services: must be a mapping from types or names to services, not NoneType"),
    (Services.of, ({5: 5},), {}, "services: must be a string, not int"),
    (InMemoryEventStore, ("x",), {}, "keep: must be a whole number from 1 to 1000000000"),
    (Failed, (ValueError("x"),), {}, "reason: must be a string, not ValueError"),
    (Failed, ("x", "no"), {}, "permanent: must be True or False, not str"),
]


@pytest.mark.parametrize(("make", "args", "kwargs", "text"), WRONG, ids=[row[3][:40] for row in WRONG])
def test_a_wrong_argument_is_refused_with_its_field_and_the_way_out(
    make: Any, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        make(*args, **kwargs)
    assert str(caught.value) == text


@frozen
class Daily(Cron):
    note: str = ""


@frozen
class OnOrder(OnEvent):
    order: int = 0


class Never(Manual):
    pass


class Patient(RetryPolicy):
    pass


@pytest.mark.parametrize("trigger", [Daily("@daily"), OnOrder("orders", "Placed"), Never()])
def test_a_subclass_of_a_trigger_is_refused_for_no_store_could_give_it_back(trigger: Any) -> None:
    with pytest.raises(ScheduleError, match=r"^trigger: must be Cron, OnEvent or Manual itself, not "):
        JobDefinition("job", "handler", trigger)


def test_a_subclass_of_a_retry_policy_is_refused_for_no_store_could_give_it_back() -> None:
    with pytest.raises(ScheduleError, match=r"^retry: must be a RetryPolicy itself, not Patient"):
        JobDefinition("job", "handler", Manual(), Patient())


def test_a_definition_with_a_forged_part_is_refused_where_it_is_scheduled() -> None:
    for part, name, value in (
        (RetryPolicy(), "max_attempts", 10**5000),
        (OnEvent("m", "t"), "subject", 5),
        (Cron("@daily"), "expression", "nonsense"),
        (Cron("@daily"), "tz", None),
        (IdempotencyKey("k", timedelta(1)), "ttl", "x"),
    ):
        retry = part if isinstance(part, RetryPolicy) else RetryPolicy()
        key = part if isinstance(part, IdempotencyKey) else None
        trigger = part if isinstance(part, OnEvent | Cron) else Manual()
        definition = JobDefinition("job", "handler", trigger, retry, key)
        object.__setattr__(part, name, value)
        with pytest.raises(ScheduleError, match=name):
            plain(definition)


class Jobs(StrEnum):
    MAIL = "mail"


def test_a_member_of_a_text_enum_is_a_name_and_kept_as_plain_text() -> None:
    definition = JobDefinition(Jobs.MAIL, "handler", Manual())
    assert type(definition.job_id) is str
    assert definition == JobDefinition("mail", "handler", Manual())


def test_no_error_repeats_a_large_value() -> None:
    for make in (
        lambda: Cron("@daily", "x" * 1_000_000),
        lambda: JobDefinition("x" * 1_000_000, "handler", Manual()),
        lambda: JobDefinition("job", "handler", type("x" * 1_000_000, (), {})()),
        lambda: RetryPolicy(backoff=[timedelta(1)] * 1_000_000),
    ):
        with pytest.raises(ScheduleError) as caught:
            make()
        assert len(str(caught.value)) < 250
