"""The state machine notices a difference: a model that is wrong in one point is told apart from the real scheduler.

No rule: it is about the machinery of the pack.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.model.definition import ScheduleOutcome
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness
from rota_contracts.clause import clauses_of
from rota_contracts.declare import STEADY, cron, manual
from rota_contracts.families.model import ModelClauses
from rota_contracts.model import Model, ModelJob, ModelRun
from rota_contracts.run_clause import run_clause
from tests.contracts.test_machinery_scene import NOON


class FiresWhilePaused(Model):
    def _decide(self, job: ModelJob) -> None:
        paused, job.paused = job.paused, None
        super()._decide(job)
        job.paused = paused


class OverlapsItself(Model):
    def _is_busy(self, job_id: str) -> bool:
        return False


class RepeatsAnEvent(Model):
    def _for_event(self, definition: Any, event: Any) -> ModelRun:
        for run in self.runs.get(definition.job_id, []):
            run.event_id = f"{run.event_id} again" if run.event_id == event.event_id else run.event_id
        return super()._for_event(definition, event)


class ReplaysTwice(Model):
    def replay(self, run: ModelRun) -> ModelRun:
        run.replayed_as = None
        return super().replay(run)


class RetriesLate(Model):
    def _fail(self, run: ModelRun) -> None:
        super()._fail(run)
        run.ready_at += timedelta(seconds=1)


class ForgetsWhatWasDecided(Model):
    def _first_due(self, definition: Any) -> datetime | None:
        self._decided.pop(definition.job_id, None)
        return super()._first_due(definition)


class LetsRetriesBeOvertaken(Model):
    def _head(self, job_id: str) -> ModelRun | None:
        ready = [run for run in self.runs.get(job_id, []) if not run.state.is_final and run.ready_at <= self.now]
        return None if any(run.state.value == "running" for run in ready) else next(iter(ready), None)


def _performed() -> None:
    (clause,) = clauses_of(ModelClauses)
    run_clause(clause, ModelClauses, BackendHarness(lambda clock: InProcessBackend(clock=clock)))


@pytest.mark.parametrize(
    "wrong",
    [
        FiresWhilePaused,
        ForgetsWhatWasDecided,
        LetsRetriesBeOvertaken,
        OverlapsItself,
        RepeatsAnEvent,
        ReplaysTwice,
        RetriesLate,
    ],
    ids=lambda wrong: wrong.__name__,
)
def test_a_difference_is_noticed(wrong: Callable[[datetime], Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_contracts.model_machine.Model", wrong)
    with pytest.raises(AssertionError):
        _performed()


# --- the model by itself ---


def test_the_model_fires_for_the_minute_it_registers_in_and_for_each_that_comes() -> None:
    model = Model(NOON)
    assert model.schedule(cron("job", payload=b"ok")) is ScheduleOutcome.REGISTERED
    model.advance(timedelta(minutes=2))
    assert [run.due for run in model.runs["job"]] == [NOON + timedelta(minutes=minute) for minute in range(3)]


def test_the_model_retries_after_its_wait_and_then_gives_up() -> None:
    model = Model(NOON)
    model.schedule(manual("job", payload=b"fail", retry=STEADY))
    run = model.trigger("job", None, None, None)
    model.advance(timedelta(seconds=19))
    assert (run.attempt, run.state.value) == (2, "retrying")
    model.advance(timedelta(seconds=1))
    assert (run.attempt, run.state.value) == (3, "dead")
    assert model.events["job"][-2:] == ["JobFailed", "JobDeadLettered"]
