"""Faults in logging and robustness (LOG, SAFE)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota import errors
from rota.backend import Claimed, ClaimRequest
from rota.errors import StoreUnavailable
from rota.logger import SafeLogger
from rota.model.health import Health, HealthReport
from rota.node.run_log import LogErrors, RunLog
from rota.node.runtime import Runtime
from rota.scheduler.life import Life
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Wrapped, everywhere, nodes, on, replaced

_set_up = RunLog.__init__


def _says_nothing(run_log: RunLog, *_: Any) -> None:
    return None


def _shows_texts(run_log: RunLog, node_id: str, errors: LogErrors) -> None:
    _set_up(run_log, node_id, LogErrors.TRACEBACK)


def _keeps_texts(run_log: RunLog, node_id: str, errors: LogErrors) -> None:
    _set_up(run_log, node_id, LogErrors.TYPE)


def _unguarded(log: SafeLogger, level: int, msg: object, *args: object, **options: Any) -> None:
    log.logger.log(level, msg, *args, **options)


class StopsAtTheUnreadable(InProcessBackend):
    """A claim reads the payloads of all that waits, and fails if one of them is no text."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        if any(b"\xff" in run.payload for lane in self._lanes.values() for run in lane.waiting or ()):
            return Claimed(now, [], self._expired(now), self._next_claimable())
        return super()._claim(request, now)


class RaisesWhenDown(Wrapped):
    """Health is told as an exception."""

    async def health(self) -> HealthReport:
        report: HealthReport = await self.node.health()
        if report.status is Health.DOWN:
            raise StoreUnavailable("the store does not answer")
        return report


async def _insists_on_signing_off(life: Life, runtime: Runtime) -> None:
    await life._backend.hand_back([], leaving=runtime.node.node_id)


FAULTS = [
    Fault("starts are not logged", "LOG-1", of(
        "LOG-1", "an_attempt_does_not_go_unlogged",
    ), patch=replaced(RunLog, "started", _says_nothing)),
    Fault("ends are not logged", "LOG-1", of(
        "LOG-1", "an_attempt_does_not_go_unlogged", "a_failing_job_does_not_hide_from_the_log",
        "a_lost_attempt_does_not_go_unlogged",
    ), patch=replaced(RunLog, "ended", _says_nothing)),
    Fault("failures are logged without their traceback", "LOG-1", of(
        "LOG-1", "a_failing_job_does_not_hide_from_the_log",
    ), patch=replaced(RunLog, "_exc_info", _says_nothing)),
    Fault("failures are logged without their text", "LOG-1", of(
        "LOG-1", "a_failing_job_does_not_hide_from_the_log",
    ), patch=replaced(RunLog, "__init__", _keeps_texts)),
    Fault("error texts that are to be kept out are logged", "LOG-1", of(
        "LOG-1", "an_error_text_is_not_logged_where_it_is_to_be_kept_out",
    ), patch=replaced(RunLog, "__init__", _shows_texts)),
    Fault("a logging handler that raises ends the slot", "LOG-2", of(
        "LOG-2", "a_broken_log_does_not_cost_a_settlement",
    ), patch=replaced(SafeLogger, "log", _unguarded)),
    Fault("names of classes are taken as they come", "LOG-2", of(
        "LOG-2", "a_hostile_error_does_not_cost_a_slot",
    ), patch=everywhere(errors.type_name, lambda value: type(value).__name__)),
    Fault("an unreadable run stops all claims", "SAFE-1", of(
        "SAFE-1", "an_unreadable_run_does_not_stop_the_others",
    ), on(StopsAtTheUnreadable)),
    Fault("health raises while the store is gone", "SAFE-2", of(
        "SAFE-2", "health_does_not_raise_while_the_store_is_gone",
    ), nodes(RaisesWhenDown)),
    Fault("leaving raises while the store is gone", "SAFE-2", of(
        "SAFE-2", "leaving_does_not_raise_while_the_store_is_gone",
    ), patch=replaced(Life, "_sign_off", _insists_on_signing_off)),
]  # fmt: skip
