"""The scheduler of an application whose jobs are switched off. Rules: API, REG-5."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rota.errors import NotOpen, ScheduleError
from rota.model.definition import JobDefinition, Manual, ScheduleOutcome
from rota.model.event import Event
from rota.model.health import Health
from rota.protocol import JobScheduler
from rota.scheduler.disabled import NoScheduler

RUN = UUID(int=1)
JOB = JobDefinition("job", "handler", Manual())
Call = Callable[[JobScheduler], Awaitable[Any]]

ANSWERS: dict[str, tuple[Call, Any]] = {
    "schedule": (lambda it: it.schedule(JOB), ScheduleOutcome.UNCHANGED),
    "unschedule": (lambda it: it.unschedule("job"), False),
    "get_schedule": (lambda it: it.get_schedule("job"), None),
    "list_schedules": (lambda it: it.list_schedules(after="job"), []),
    "get_run_history": (lambda it: it.get_run_history("job"), []),
    "get_run": (lambda it: it.get_run(RUN), None),
    "status": (lambda it: it.status("job"), None),
    "notify": (lambda it: it.notify(Event("shop", "Ordered")), []),
    "pause": (lambda it: it.pause("job", reason="holiday"), None),
    "resume": (lambda it: it.resume("job"), None),
    "cancel": (lambda it: it.cancel(RUN), False),
    "dead_letters": (lambda it: it.dead_letters(after=RUN), []),
    "discard": (lambda it: it.discard(RUN), False),
}
NEW_IDS: dict[str, Call] = {
    "trigger_once": lambda it: it.trigger_once("job", payload=b"x", delay=timedelta(1), within=object()),
    "replay": lambda it: it.replay(RUN),
}
WRONG: dict[str, tuple[str, Call]] = {
    "a job id": ("job_id", lambda it: it.trigger_once("")),
    "a scope": ("scope_id", lambda it: it.unschedule("job", scope_id="")),
    "a payload": ("payload", lambda it: it.trigger_once("job", payload="text")),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a delay": ("delay", lambda it: it.trigger_once("job", delay=timedelta(-1))),
    "a key": ("idempotency_key", lambda it: it.trigger_once("job", idempotency_key="k")),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a limit": ("limit", lambda it: it.list_schedules(limit=0)),
    "a definition": ("definition", lambda it: it.schedule("job")),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a reason": ("reason", lambda it: it.pause("job", reason="")),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_it_answers_as_if_nothing_were_there(name: str, caplog: pytest.LogCaptureFixture) -> None:
    call, expected = ANSWERS[name]
    with caplog.at_level(logging.DEBUG):
        async with NoScheduler() as scheduler:
            assert await call(scheduler) == expected
    assert f"disabled: {name}" in caplog.text


@pytest.mark.parametrize("name", NEW_IDS)
async def test_ids_of_runs_that_never_happen_are_new_each_time(name: str) -> None:
    async with NoScheduler() as scheduler:
        assert await NEW_IDS[name](scheduler) != await NEW_IDS[name](scheduler)


@pytest.mark.parametrize("name", WRONG)
async def test_arguments_are_checked_as_ever(name: str) -> None:
    field, call = WRONG[name]
    async with NoScheduler() as scheduler:
        with pytest.raises(ScheduleError) as caught:
            await call(scheduler)
    assert caught.value.field == field


async def test_health_is_ok_and_says_that_jobs_are_disabled() -> None:
    async with NoScheduler() as scheduler:
        report = await scheduler.health()
    assert report.status is Health.OK
    assert "disabled" in report.checks[0].detail


async def test_entering_twice_raises_and_entering_again_later_works() -> None:
    scheduler = NoScheduler()
    async with scheduler:
        with pytest.raises(NotOpen):
            await scheduler.__aenter__()
    async with scheduler:
        await scheduler.health()


@pytest.mark.parametrize("call", [*(call for call, _ in ANSWERS.values()), *NEW_IDS.values(), lambda it: it.health()])
async def test_outside_nothing_works(call: Call) -> None:
    with pytest.raises(NotOpen):
        await call(NoScheduler())
