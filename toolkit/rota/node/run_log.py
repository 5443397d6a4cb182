"""One log line when an attempt starts and one when it ends, on the logger `rota.runs` (LOG-1).

A line is built only if its level is enabled. Nothing here raises: `safe_logger` catches what logging handlers raise,
and exceptions are turned into text by `error_text` (LOG-2).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from rota.backend.messages import Claim, Settlement
from rota.decide.attempt import Outcome, Raised, TimedOut
from rota.errors import error_text, safe_text, stand_in, traceback_of, type_name, without_text
from rota.logger import safe_logger
from rota.model.choice import Choice
from rota.model.outcome import Failed
from rota.model.run import AttemptOutcome, RunState
from rota.model.validation import DEFAULT_SCOPE

log = safe_logger("rota.runs")
logs_level = log.logger.isEnabledFor  # called twice for every run

_MOST_CHARACTERS = 300  # of an error in a message; the traceback and the history have more
_ROTA = f"{Path(__file__).parent.parent}{os.sep}"  # the file names of Rota's frames begin with it
_SUCCEEDED = RunState.SUCCEEDED  # nearly all runs: comparing is faster than a lookup in `_LEVELS`
_LEVELS = {RunState.CANCELLED: logging.INFO, RunState.RETRYING: logging.WARNING, RunState.DEAD: logging.ERROR}
_ENDED = {
    AttemptOutcome.SUCCEEDED: "succeeded",
    AttemptOutcome.FAILED: "failed",
    AttemptOutcome.TIMED_OUT: "timed out",
    AttemptOutcome.LOST: "was lost",
    AttemptOutcome.CANCELLED: "was cancelled",
}


class LogErrors(Choice):
    """How much of a handler's exception the run log shows."""

    TRACEBACK = "traceback"  # type, text and traceback
    TYPE = "type"  # the type and the lines of code, no text and no value


class RunLog:
    """The run log of one node."""

    def __init__(self, node_id: str, errors: LogErrors = LogErrors.TRACEBACK) -> None:
        self._node_id = node_id
        self._shows_text = errors is LogErrors.TRACEBACK

    def started(self, claim: Claim) -> None:
        """The attempt begins on this node. The caller asks first whether INFO is logged."""
        log.info(
            "%s started: handler %r, cause %s", _subject(claim), claim.definition.handler_name, claim.cause.value,
            extra=self._extra(claim, "started"),
        )  # fmt: skip

    def ended(self, claim: Claim, outcome: Outcome, settlement: Settlement, clock: Callable[[], datetime]) -> None:
        """The attempt has ended with this outcome, and the run changes as `settlement` says."""
        level = logging.INFO if settlement.state is _SUCCEEDED else _LEVELS[settlement.state]
        if not logs_level(level):
            return
        error = outcome.error if isinstance(outcome, Raised | TimedOut) else None
        now = clock()
        took = max(now - claim.started_at, timedelta(0))
        extra = self._extra(
            claim, settlement.state.value, took=took, outcome=settlement.outcome.value,
            error_type=type_name(error) if isinstance(outcome, Raised) else None,
        )  # fmt: skip
        log.log(
            level, "%s %s after %.3f s%s%s", _subject(claim), _ENDED[settlement.outcome], took.total_seconds(),
            self._error(outcome, settlement), _next_step(claim, settlement, now),
            exc_info=None if error is None or level == logging.INFO else self._exc_info(error), extra=extra,
        )  # fmt: skip

    def handed_back(self, claim: Claim, clock: Callable[[], datetime]) -> None:
        """The run was handed back to the store; the attempt does not count."""
        if logs_level(logging.INFO):
            took = max(clock() - claim.started_at, timedelta(0))
            log.info(
                "%s was handed back after %.3f s; another node starts the same attempt", _subject(claim),
                took.total_seconds(), extra=self._extra(claim, "handed_back", took=took),
            )  # fmt: skip

    def _error(self, outcome: Outcome, settlement: Settlement) -> str:
        if settlement.outcome is AttemptOutcome.LOST:
            return ": its lease expired"
        if settlement.outcome is not AttemptOutcome.FAILED:
            return ""
        if isinstance(outcome, Raised):
            return f" with {_one_line(error_text(outcome.error) if self._shows_text else type_name(outcome.error))}"
        if isinstance(outcome, Failed) and not self._shows_text:
            return ""
        return f": {_one_line(settlement.error or '')}"

    def _exc_info(self, error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
        logged: BaseException = error
        if not self._shows_text:
            logged = without_text(error)
        elif not _is_printable(error):
            logged = stand_in(error, safe_text(error))
        return type(logged), logged, _frames_of_the_application(traceback_of(error))

    def _extra(
        self,
        claim: Claim,
        event: str,
        *,
        took: timedelta | None = None,
        outcome: str | None = None,
        error_type: str | None = None,
    ) -> dict[str, Any]:
        fields = {
            "event": event,
            "scope_id": claim.key.scope_id,
            "job_id": claim.key.job_id,
            "run_id": str(claim.run_id),
            "attempt": claim.attempt,
            "handler": claim.definition.handler_name,
            "queue": claim.queue,
            "node_id": self._node_id,
            "cause": claim.cause.value,
            "duration_ms": None if took is None else took / timedelta(milliseconds=1),
            "outcome": outcome,
            "error_type": error_type,
        }
        return {"rota": fields}


def _subject(claim: Claim) -> str:
    scope = "" if claim.key.scope_id == DEFAULT_SCOPE else f" in scope {claim.key.scope_id!r}"
    return f"job {claim.key.job_id!r}{scope}, run {claim.run_id}: attempt {claim.attempt}"


def _next_step(claim: Claim, settlement: Settlement, now: datetime) -> str:
    if settlement.state is RunState.RETRYING:
        at = _instant(now, settlement.wait or timedelta(0))
        return f"; attempt {claim.attempt + 1} starts at {at}"
    if settlement.state is RunState.DEAD:
        return f"; the run is a dead letter: {_one_line(settlement.reason or '')}"
    if settlement.state is RunState.CANCELLED:
        return f": {_one_line(settlement.reason or '')}"
    return ""


def _instant(now: datetime, wait: timedelta) -> str:
    try:
        return f"{now + wait:%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:  # a wait may reach past the year 9999
        return "no date of this calendar"


def _one_line(text: str) -> str:
    """The text without line breaks: it must not forge a second log line."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + "…"


def _is_printable(error: BaseException) -> bool:
    """True if a logging handler can print it: `str()` gives a bounded text that can be encoded."""
    try:
        return str(error) == safe_text(error) and type(error).__name__ == type_name(error)
    except BaseException:
        return False


def _frames_of_the_application(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Rota's own frames."""
    kept: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_ROTA):
            kept.append(trace)
        trace = trace.tb_next
    cut: TracebackType | None = None
    for each in reversed(kept):
        cut = TracebackType(cut, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return cut
