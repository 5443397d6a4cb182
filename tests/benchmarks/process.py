"""Each entry is measured in a process of its own, in turns: a slow moment of the machine meets all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from attrs import field, frozen

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds for one measurement
_WHERE = ("url", "postmaster", "path")  # of no interest to who watches
T = TypeVar("T")


@frozen
class Entry:
    """A module of `entries`, under a name, with settings of its own."""

    name: str
    module: str
    settings: dict[str, Any] = field(factory=dict)
    title: str = ""

    def fact(self, name: str) -> str:
        """What the module says of itself: TITLE, PROMISES, SETTINGS."""
        text: str = getattr(import_module(f"tests.benchmarks.entries.{self.module}"), name)
        return text

    def label(self) -> str:
        return self.title or self.fact("TITLE")


class Broken(Exception):
    """An entry could not be measured."""


def apscheduler4() -> Path:
    """The folder that APScheduler 4 is installed in, apart from APScheduler 3, which has the same import name."""
    named = os.environ.get("ROTA_BENCH_APSCHEDULER4")
    return Path(named) if named else Path(sys.prefix) / "apscheduler4"


def command(entry: Entry, what: str, **settings: Any) -> list[str]:
    """What measures one entry in a process of its own."""
    return [sys.executable, "-m", "tests.benchmarks.one", entry.module, what, json.dumps(settings | entry.settings)]


def measure(entry: Entry, what: str, *, patience: float = PATIENCE, **settings: Any) -> dict[str, Any]:
    """One measurement of one entry."""
    began = time.monotonic()
    done = subprocess.run(
        command(entry, what, **settings),
        cwd=ROOT,
        env=_environment(entry),
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    if done.returncode:
        raise Broken(f"{entry.name} {what}: {done.stderr.strip()[-2000:]}")
    told = ", ".join(f"{name}={value}" for name, value in settings.items() if name not in _WHERE)
    say(f"  {entry.name} {what} {told}: {time.monotonic() - began:.1f} s")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _environment(entry: Entry) -> dict[str, str]:
    environment = dict(os.environ)
    if entry.module == "apscheduler4":
        path = [str(apscheduler4().resolve()), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return environment


def in_turns(entries: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Every entry once per round, each round beginning with another one."""
    for number in range(rounds):
        first = number % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            yield number, entry


def installed(entries: Iterable[Entry]) -> list[Entry]:
    """Without APScheduler 4 where its folder is missing, which is said."""
    found = list(entries)
    if not apscheduler4().is_dir():
        say("  APScheduler 4 is not installed apart (make bench does it): left out")
        found = [entry for entry in found if entry.module != "apscheduler4"]
    return found


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
