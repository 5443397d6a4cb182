"""What all commands share: an error Rota raises on purpose becomes a message and an exit code, never a traceback."""

from __future__ import annotations

from typing import Any

import click

from rota.errors import InvalidCron, RotaError, ScheduleError


class Refused(click.ClickException):
    """The input is wrong: exit code 2, as for any other wrong use of the command line."""

    exit_code = 2


class Commands(click.Group):
    """A group whose commands may let Rota's errors through."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ScheduleError as error:
            raise Refused(_explained(error)) from error
        except RotaError as error:
            raise click.ClickException(str(error)) from error


def _explained(error: ScheduleError) -> str:
    """The field and the reason; a cron expression is shown itself, with the place that is wrong."""
    if isinstance(error, InvalidCron):
        return f"{error.reason}\n    {error.expression}\n    {' ' * error.position}^"
    return str(error)
