"""Latency: from the trigger to the handler's first line, when nothing else is going on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.benchmarks.bench_drain import FLOOR, OURS
from tests.benchmarks.bench_drain import PEERS as ALL_PEERS
from tests.benchmarks.process import Entry, in_turns, installed, measure
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "latency"
PAUSE = 0.003
PEERS = tuple(peer for peer in ALL_PEERS if not peer.settings)  # more threads start nothing sooner
Raw = dict[str, list[dict[str, Any]]]


def run(quick: bool) -> Report:
    """`quick`: fewer triggers, one round."""
    count, rounds = (200, 1) if quick else (1_000, 5)
    entries = installed((OURS, *PEERS, FLOOR))
    raw: Raw = {entry.name: [] for entry in entries}
    for _, entry in in_turns(entries, rounds):
        raw[entry.name].append(measure(entry, "latency", count=count, pause=PAUSE, warm_up=100))
    return Report(
        NAME,
        {"triggers": count, "pause_seconds": PAUSE, "rounds": rounds, "warm_up": 100}
        | {entry.name: entry.fact("SETTINGS") for entry in entries},
        raw,
        [_table(entries, raw)],
        _goals(raw),
        [f"{entry.label()}: {entry.fact('PROMISES')}" for entry in entries],
        [
            f"{count:,} triggers, each {PAUSE * 1000:g} ms after the last one started; the same in every entry",
            "Huey has no wake-up in memory: its latency is that of its poll, here 1 ms",
        ],
    )


def _table(entries: Sequence[Entry], raw: Raw) -> Table:
    table = Table("trigger to start in us: median (range) of the rounds", ("", "p50", "p90", "p99", "slowest"))
    for entry in entries:
        columns = [[each[name] for each in raw[entry.name]] for name in ("p50", "p90", "p99", "p100")]
        table.rows.append((entry.label(), *(spread(column, 1e6) for column in columns)))
    return table


def _goals(raw: Raw) -> list[Goal]:
    peers = [raw[peer.name] for peer in PEERS if peer.name in raw]
    rounds = list(zip(raw[OURS.name], *peers, strict=True))
    return [
        Goal(
            f"latency {name}, the best peer's against ours",
            1.0,
            median(min(other[name] for other in others) / ours[name] for ours, *others in rounds),
        )
        for name in ("p50", "p99")
    ]
