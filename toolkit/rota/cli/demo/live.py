"""The demo as a live view; the only module that imports rich."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rota import Event
from rota.cli.demo.look import JobLine, Moment, decision_text, event_text
from rota.cli.demo.story import LENGTH, START

_ROWS = 9
_STYLES = {"running": "bold green", "retrying": "yellow", "paused": "blue", "queued": "magenta", "idle": "dim"}
_EVENT_STYLES = {"JobSucceeded": "green", "JobFailed": "yellow", "JobDeadLettered": "bold red", "JobTriggered": "cyan"}


class LiveView:
    """Redraws the whole view at each moment."""

    def __init__(self) -> None:
        self._events: deque[Text] = deque(maxlen=_ROWS)
        self._live = Live(console=Console(), auto_refresh=False)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def show(self, moment: Moment, events: list[Event], acts: list[tuple[datetime, str]]) -> None:
        self._events.extend(_event_line(event, moment.now) for event in events)
        below = Table.grid(expand=True)
        below.add_column(ratio=1)
        below.add_column(ratio=1)
        below.add_row(
            Panel(_padded(list(self._events)), title="lifecycle events", border_style="dim"),
            Panel(_padded(_decision_lines(moment)), title="occurrences that made no run, and why", border_style="dim"),
        )
        news = Text("".join(f"{at:%H:%M:%S}  {sentence}" for at, sentence in acts[-1:]), style="bold")
        self._live.update(Group(_header(moment), _jobs(moment.jobs), below, news), refresh=True)


def _header(moment: Moment) -> Table:
    grid = Table.grid(expand=True, padding=(0, 2))
    clock = Text(f"{moment.now:%H:%M:%S}", style="bold reverse")
    letters = Text(f"dead letters: {moment.letters}", style="bold red" if moment.letters else "dim")
    bar = ProgressBar(total=LENGTH.total_seconds(), completed=(moment.now - START).total_seconds())
    grid.add_column(width=8)
    grid.add_column(ratio=1)
    health = Text(f"health: {moment.health.value}", style="dim")
    grid.add_row(clock, bar, letters, health, Text("Ctrl-C ends", style="dim"))
    return grid


def _jobs(jobs: list[JobLine]) -> Table:
    table = Table(expand=True, box=None, header_style="dim")
    table.add_column("job", no_wrap=True)
    table.add_column("schedule", no_wrap=True, style="dim")
    table.add_column("next due", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("recent runs", no_wrap=True, min_width=11)
    for job in jobs:
        due = "" if job.next_due is None else f"{job.next_due:%H:%M}"
        table.add_row(
            job.job_id, job.schedule, due, Text(job.state, style=_STYLES[job.state]), job.detail, _marks(job.recent)
        )
    return table


def _marks(recent: str) -> Text:
    text = Text(recent)
    for mark, style in (("✓", "green"), ("✗", "bold red"), ("↻", "yellow")):
        text.highlight_words([mark], style)
    return text


def _event_line(event: Event, now: datetime) -> Text:
    style = _EVENT_STYLES.get(event.event_type, "")
    return Text(f"{event.occurred_at or now:%H:%M:%S} {event_text(event)}", style=style)


def _decision_lines(moment: Moment) -> list[Text]:
    return [Text(f"{job_id} {decision_text(each)}") for job_id, each in moment.decisions[:_ROWS]]


def _padded(lines: list[Text]) -> Text:
    """Always the same height, so that the view does not jump."""
    return Text("\n", no_wrap=True, overflow="ellipsis").join([*lines, *[Text("")] * (_ROWS - len(lines))])
