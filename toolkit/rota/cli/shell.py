"""Error handling of all commands: a RotaError becomes a message and an exit code.

With `--traceback` the traceback is printed too.
"""

from __future__ import annotations

import math
import signal
import traceback
from typing import Any

import click

from rota.errors import InvalidCron, RotaError, ScheduleError

traceback_option = click.option(
    "--traceback", is_flag=True, envvar="ROTA_TRACEBACK", show_envvar=True,
    help="Show the whole traceback of an error, before its message.",
)  # fmt: skip


class Seconds(click.FloatRange):
    """A number of seconds that a clock can wait for."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds; give one such as 30", param, ctx)
        return seconds


class InvalidInput(click.ClickException):
    """The input is wrong: exit code 2, as for any other wrong use of the command line."""

    exit_code = 2


class Commands(click.Group):
    """A group that turns the errors of its commands into messages."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, RotaError) as error:
            if asked_for_traceback(ctx):
                click.echo("".join(traceback.format_exception(error.__cause__ or error)), err=True)
            raise _as_click_error(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise SystemExit(128 + signal.SIGINT) from None


def asked_for_traceback(context: click.Context) -> bool:
    """True if `rota` was called with `--traceback`, also for its commands."""
    return bool(context.find_root().params.get("traceback"))


def _as_click_error(error: click.ClickException | RotaError) -> click.ClickException:
    if isinstance(error, click.ClickException):
        return error
    return InvalidInput(_explained(error)) if isinstance(error, ScheduleError) else click.ClickException(str(error))


def _explained(error: ScheduleError) -> str:
    """The field and the reason; a cron expression is printed with a mark at the wrong character."""
    if isinstance(error, InvalidCron):
        return f"{error.reason}\n    {error.expression}\n    {' ' * error.position}^"
    return str(error)
