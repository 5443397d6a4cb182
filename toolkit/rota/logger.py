"""Loggers that never raise: a failing logging handler must not lose a settlement or kill a slot (LOG-2)."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Catches exceptions of logging handlers and filters, and prints them to stderr, as `logging` does itself."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """As `Logger.log`; every other method of the adapter calls this one."""
        if not self.isEnabledFor(level):
            return
        options["stacklevel"] = options.get("stacklevel", 1) + 1  # the caller's line, not this one
        try:
            self.logger.log(level, msg, *args, **options)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a CancelledError from here is nobody's cancellation
            _report(self.logger.name, error)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add nothing."""
        return msg, kwargs


def safe_logger(name: str) -> SafeLogger:
    """The logger of this name, wrapped."""
    return SafeLogger(logging.getLogger(name))


def _report(name: str, error: BaseException) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    with suppress(Exception):  # the error's own text may raise, and stderr may be closed
        sys.stderr.write(f"rota: a logging handler of {name!r} raised; the log line is lost, the work goes on\n")
        traceback.print_exception(error, file=sys.stderr)
