"""`rota next` and `rota explain`: the meaning of a cron expression, before a job uses it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from rota.errors import ScheduleError
from rota.model.validation import DEFAULT_SCOPE, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.cron import Cron

_FIXED = "When the clocks change: a skipped time fires once, right after the gap; a repeated time fires once."
_WILDCARD = "When the clocks change: it goes on by elapsed time, through both passes of a repeated hour."


def _one(context: click.Context, _: click.Parameter, words: tuple[str, ...]) -> str:
    """Refuse several words: without quotes the shell splits an expression and replaces * by file names."""
    if len(words) == 1:
        return words[0]
    raise click.UsageError(f'EXPR is one argument, quote it: rota {context.info_name} "0 8 * * MON-FRI"', context)


_expression = click.argument("expression", metavar="EXPR", nargs=-1, callback=_one)
_tz = click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="IANA time zone of the schedule.")
_job = click.option("--job", metavar="ID", help="The job whose name decides the value of H.")
_scope = click.option("--scope", default=DEFAULT_SCOPE, show_default=True, metavar="ID", help="The scope of that job.")
_posix = click.option("--posix", is_flag=True, help="Accept strict POSIX only: numbers, lists, ranges and *.")


@click.command("next")
@_expression
@_tz
@_job
@_scope
@_posix
@click.option(
    "-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many occurrences to show."
)
@click.option("--after", metavar="TIME", help="Start after this ISO time instead of now; in ZONE if it has no offset.")
def next_command(
    expression: str, tz: str, job: str | None, scope: str, posix: bool, count: int, after: str | None
) -> None:
    """Show the next occurrences of the cron expression EXPR.

    EXPR has five fields (minute hour day month weekday), six with seconds first, or is a macro like @daily. Quote it:

    \b
        rota next "0 8 * * MON-FRI" --tz Europe/Berlin -n 3
        rota next "30 2 * * *" --tz Europe/Berlin --after 2026-03-28

    Each line is the local time with its offset and the same instant in UTC. A change of the offset is pointed out. An
    expression with H needs --job, because H is a value of the job's own.
    """
    cron = _of_job(_cron(expression, tz, posix=posix), job, scope)
    if not cron.is_resolved:
        raise click.UsageError("H is a value of its own for each job; name the job with --job ID")
    zone = ZoneInfo(tz)
    start = datetime.now(UTC) if after is None else _instant(after, zone)
    occurrences = [_local(due, zone) for due in _following(cron, start, count)]
    for earlier, due in pairwise([_local(start, zone), *occurrences]):
        note = "" if earlier.utcoffset() == due.utcoffset() else "  offset changed"
        click.echo(f"{due:%a} {due.isoformat(sep=' ')}  {due.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}{note}")


@click.command("explain")
@_expression
@_tz
@_job
@_scope
@_posix
def explain_command(expression: str, tz: str, job: str | None, scope: str, posix: bool) -> None:
    """Say in words when the cron expression EXPR fires.

    \b
        rota explain "*/15 9-17 * * 1-5"
        rota explain "30 2 * * *" --tz Europe/Berlin

    With a zone other than UTC, also what happens when the clocks change. With --job, an H is replaced by that job's
    value.
    """
    cron = _of_job(_cron(expression, tz, posix=posix), job, scope)
    if cron.expression != expression:
        click.echo(f"{cron.expression} for job {job}")
    click.echo(cron.describe())
    if tz != "UTC":
        click.echo(_FIXED if cron.is_fixed else _WILDCARD)


def _cron(expression: str, tz: str, *, posix: bool) -> Cron:
    from rota.cron import Cron

    make = Cron.posix if posix else Cron
    try:
        return make(expression, tz=tz)
    except ScheduleError as error:
        if error.field == "trigger.tz":
            raise click.BadParameter(error.reason, param_hint="--tz") from error
        raise


def _of_job(cron: Cron, job: str | None, scope: str) -> Cron:
    return cron if job is None else cron.resolved(check_name("--scope", scope), check_name("--job", job))


def _instant(text: str, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):  # the second: year 1 in Tokyo is year 0 in UTC
        raise click.BadParameter(f"{text!r} is not an ISO time like 2026-03-28T12:00", param_hint="--after") from None


def _local(instant: datetime, zone: ZoneInfo) -> datetime:
    try:
        return instant.astimezone(zone)
    except OverflowError:
        raise click.BadParameter(
            f"{instant:%Y-%m-%dT%H:%MZ} has no local time in {zone.key}, because the calendar has the years 1 to 9999; "
            "choose a time further from its ends",
            param_hint="--after",
        ) from None


def _following(cron: Cron, start: datetime, count: int) -> Iterator[datetime]:
    for _ in range(count):
        start = cron.next_after(start)
        yield start
