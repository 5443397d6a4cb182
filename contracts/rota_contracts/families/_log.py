"""The log of the process, as clauses look at it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_FORM = logging.Formatter("%(message)s")


@contextmanager
def logged(name: str = "", level: int = logging.DEBUG) -> Generator[list[logging.LogRecord]]:
    """Everything that is logged inside, on this logger and those below it."""
    records: list[logging.LogRecord] = []
    with _handled_by(_Records(records), name, level):
        yield records


@contextmanager
def broken_logging() -> Generator[None]:
    """Inside, every line that Rota logs meets a handler that raises."""
    was_loud, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        with _handled_by(_Broken(), "rota", logging.DEBUG):
            yield
    finally:
        logging.raiseExceptions = was_loud


def written(record: logging.LogRecord) -> str:
    """All that a handler could write of it: message, arguments, traceback and extra fields."""
    return f"{_FORM.format(record)} {record.args!r} {fields(record)!r}"


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Its `extra={"rota": …}`."""
    found: dict[str, Any] = vars(record).get("rota", {})
    return found


@contextmanager
def _handled_by(handler: logging.Handler, name: str, level: int) -> Generator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Records(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.DEBUG)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


class _Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is gone")
