"""Backlogs: loaded once, copied for each measurement, drained in turns, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import Any, Protocol

from attrs import field, frozen

from tests.benchmarks.process import Entry, in_turns, measure
from tests.benchmarks.report import Table, spread

Rows = dict[str, list[dict[str, Any]]]
_LOADING = 3_600  # seconds: ten million rows take a while


@frozen
class Backlog:
    """What is loaded for an entry; its settings go to `load`, those of the entry to `drain`."""

    entry: Entry
    runs: int
    settings: dict[str, Any] = field(factory=dict)

    @property
    def content(self) -> str:
        """Equal where the same rows are loaded."""
        return f"{self.entry.module} {self.runs} {self.settings}"

    def load(self, **where: Any) -> None:
        entry = Entry(self.entry.name, self.entry.module)
        measure(entry, "load", patience=_LOADING, **where, runs=self.runs, **self.settings)


class Stores(Protocol):
    """Where backlogs are kept: databases of a server, or files."""

    def filled(self, backlog: Backlog) -> str:
        """A new store that holds the backlog."""

    def copy(self, store: str) -> AbstractContextManager[dict[str, Any]]:
        """A copy for one measurement: what the entry is told of it."""

    def drop(self, store: str) -> None: ...


def drain(
    stores: Stores, backlogs: Sequence[Backlog], rounds: int, then: Callable[[Backlog, str], object] = lambda *_: None
) -> Rows:
    """Each backlog once per round, on a copy of its own; `then` looks at what was loaded."""
    raw: Rows = {each.entry.name: [] for each in backlogs}
    filled = {content: stores.filled(each) for content, each in {each.content: each for each in backlogs}.items()}
    for _, each in in_turns(backlogs, rounds):
        with stores.copy(filled[each.content]) as where:
            raw[each.entry.name].append(measure(each.entry, "drain", **where, runs=each.runs))
    for each in backlogs:
        then(each, filled[each.content])
    for store in filled.values():
        stores.drop(store)
    return raw


def settings(backlogs: Sequence[Backlog]) -> dict[str, Any]:
    """Of each entry, for the report."""
    return {each.entry.name: {"runs": each.runs} | each.settings | each.entry.settings for each in backlogs} | {
        each.entry.module: each.entry.fact("SETTINGS") for each in backlogs
    }


def promises(backlogs: Sequence[Backlog]) -> list[str]:
    """Of each library once."""
    return list(dict.fromkeys(f"{each.entry.fact('TITLE')}: {each.entry.fact('PROMISES')}" for each in backlogs))


def table(title: str, rows: Rows, backlogs: Sequence[Backlog], cpu: dict[str, str]) -> Table:
    """`cpu`: the titles of the CPU columns, by what was measured."""
    head = ("", "runs/s", "to last execution", "to last event", *cpu.values(), "runs")
    found = Table(f"drain, {title}: median (range)", head)
    for backlog in backlogs:
        each = rows[backlog.entry.name]
        costs = (spread([cost(one, what) for one in each], 1e6) for what in cpu)
        rates = (_rates(each, what) for what in ("wall", "executed_wall", "events_wall"))
        found.rows.append((backlog.entry.label(), *rates, *costs, f"{backlog.runs:,}"))
    return found


def _rates(rows: Sequence[dict[str, Any]], what: str) -> str:
    return spread([rate(each, what) for each in rows]) if what in rows[0] else ""


def rate(found: dict[str, Any], what: str = "wall") -> float:
    return float(found["runs"] / found[what])


def cost(found: dict[str, Any], what: str) -> float:
    """CPU seconds per run, to the last event where there are events."""
    return float(found.get(f"events_{what}", found[what]) / found["runs"])


def ratio(
    rows: Rows, ours: Entry | Sequence[Entry], others: Sequence[Entry], what: str = "wall", our_what: str = ""
) -> float:
    """In each round how many times as fast the faster of ours is as the fastest of the others; the median of that."""
    mine = [ours] if isinstance(ours, Entry) else ours
    found = zip(_best(rows, mine, our_what or what), _best(rows, others, what), strict=True)
    return median(our_rate / rate for our_rate, rate in found)


def _best(rows: Rows, entries: Sequence[Entry], what: str) -> list[float]:
    return [max(rate(each, what) for each in found) for found in zip(*(rows[e.name] for e in entries), strict=True)]


def cpu_ratio(rows: Rows, ours: Entry, others: Sequence[Entry], *what: str) -> float:
    """How many times as cheap as the cheapest of the others, all that is named together, ours to the last event."""
    rounds = zip(rows[ours.name], *(rows[other.name] for other in others), strict=True)
    return median(min(_costs(each, what) for each in peers) / _costs(mine, what) for mine, *peers in rounds)


def _costs(found: dict[str, Any], what: Sequence[str]) -> float:
    return sum(cost(found, each) for each in what)
