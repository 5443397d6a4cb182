"""Plays the story at a watchable pace."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from os.path import relpath
from pathlib import Path
from time import monotonic
from typing import Protocol, Self

from rota import Event, RunState
from rota.cli.demo import jobs
from rota.cli.demo.look import Moment, Reader, look
from rota.cli.demo.plain import PlainView
from rota.cli.demo.story import LENGTH, START, Stage

_FRAMES_PER_SECOND = 8
_JOBS = relpath(jobs.__file__)
_FEWEST_FRAMES = 52  # half a minute of the story each


class View(Protocol):
    """A way to show the demo."""

    def show(self, moment: Moment, events: list[Event], acts: list[tuple[datetime, str]]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


def play(seconds: float, say: Callable[[str], None], *, live: bool, url: str | None = None) -> None:
    """Play the story in about `seconds`; returns at its end, or on Ctrl-C.

    Without a URL the jobs are in a temporary SQLite file.
    """
    view = _live_view(say) if live else PlainView(say)
    with tempfile.TemporaryDirectory(prefix="rota-demo-") as folder:
        try:
            asyncio.run(_play(url or f"sqlite:{Path(folder) / 'jobs.db'}", seconds, view, say))
        except KeyboardInterrupt:
            say("stopped")


def _live_view(say: Callable[[str], None]) -> View:
    try:
        from rota.cli.demo.live import LiveView
    except ImportError:
        say('plain lines, because rich is not installed: pip install "rota[cli]"')
        return PlainView(say)
    return LiveView()


async def _play(url: str, seconds: float, view: View, say: Callable[[str], None]) -> None:
    async with Stage(url) as stage:
        await stage.set()
        with view:
            await _frames(stage, view, seconds)
        for line in await _summary(stage):
            say(line)


async def _frames(stage: Stage, view: View, seconds: float) -> None:
    frames = max(round(seconds * _FRAMES_PER_SECOND), _FEWEST_FRAMES)
    reader, began = Reader(stage), monotonic()
    for frame in range(1, frames + 1):
        await stage.advance_to(START + LENGTH * frame / frames)
        view.show(await look(stage), await reader.new_events(), stage.acts)
        await asyncio.sleep(max(began + seconds * frame / frames - monotonic(), 0))


async def _summary(stage: Stage) -> list[str]:
    moment = await look(stage)
    without: Counter[str] = Counter()
    for _, each in moment.decisions:
        without[each.kind.value] += each.count
    succeeded, dead = 0, 0
    for job in moment.jobs:
        for run in await stage.client.get_run_history(job.job_id, limit=1000):
            succeeded += run.state is RunState.SUCCEEDED
            dead += run.state is RunState.DEAD
    return [
        "",
        f"{LENGTH} of virtual time: {succeeded} runs succeeded, {dead} became a dead letter and was replayed.",
        f"Occurrences that made no run, all recorded: {', '.join(f'{n} {kind}' for kind, n in without.items())}.",
        f"The jobs are ordinary ones: {_JOBS}. Next: docs/tutorial.md",
    ]
