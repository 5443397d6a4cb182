"""Many cron jobs: adding one, its memory, a tick with nothing due, and what a due job costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tests.benchmarks.process import Entry, in_turns, installed, measure
from tests.benchmarks.report import Goal, Report, Table

NAME = "schedules"
OURS = Entry("rota", "ours_schedules")
PEERS = (Entry("apscheduler3", "apscheduler3"), Entry("apscheduler4", "apscheduler4"))
TICKS = {1_000: 30, 10_000: 10, 100_000: 4}  # minutes with 1 % due, before the one with all due
IDLE = 1_000
HUGE = 100_000
MEMORY_OF_PEERS = 10_000  # the most jobs at which a peer's memory is measured
Found = dict[str, Any]
Raw = dict[str, dict[str, list[Found]]]  # by number of jobs, then by entry


def run(quick: bool) -> Report:
    """`quick`: without 100,000 jobs, one round."""
    sizes = [size for size in TICKS if not quick or size < HUGE]
    rounds = 1 if quick else 3
    entries = installed((OURS, *PEERS))
    raw, memory = _measure(entries, sizes, rounds), _memory(entries, sizes)
    return Report(
        NAME,
        {"jobs": sizes, "rounds": rounds, "rounds_of_peers_at_100000": 1, "minutes_with_1_percent_due": TICKS}
        | {entry.name: entry.fact("SETTINGS") for entry in entries},
        {"ticks": raw, "bytes_each": memory},
        [_table(size, raw[str(size)], memory[str(size)], entries) for size in sizes],
        _goals(raw, memory, sizes),
        [f"{entry.label()}: {entry.fact('PROMISES')}" for entry in entries],
        [
            "CPU seconds; the least of the rounds, and within a round the median of its minutes",
            "whole: from the tick to the last execution (Rota: and the last lifecycle event); tick: the tick alone",
            "1 % of the jobs run every minute, the others at midnight: all are due then",
            "bytes: Rota without and with the JobRegistered event that its event store keeps of each job",
            "peers: 100,000 jobs once (a minute each), memory up to 10,000 jobs (it is the same for each)",
            "APScheduler 4's idle tick is only what its loop asks of its store",
        ],
    )


def _measure(entries: Sequence[Entry], sizes: Sequence[int], rounds: int) -> Raw:
    raw: Raw = {str(size): {entry.name: [] for entry in entries} for size in sizes}
    for size in sizes:
        for number, entry in in_turns(entries, rounds):
            if size < HUGE or entry is OURS or number == 0:
                raw[str(size)][entry.name].append(measure(entry, "schedules", jobs=size, ticks=TICKS[size], idle=IDLE))
    return raw


def _memory(entries: Sequence[Entry], sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {str(size): {} for size in sizes}
    for size in sizes:
        for entry in entries:
            if entry is OURS:
                found[str(size)]["rota"] = measure(entry, "memory", jobs=size, events=False)["bytes_each"]
                found[str(size)]["rota with events"] = measure(entry, "memory", jobs=size, events=True)["bytes_each"]
            elif size <= MEMORY_OF_PEERS:
                found[str(size)][entry.name] = measure(entry, "memory", jobs=size)["bytes_each"]
    return found


def least(found: Sequence[Found], of: Callable[[Found], float]) -> float:
    """The least of the rounds: what else runs on the machine only ever adds."""
    return min(map(of, found))


def per_due(share: str, what: str = "whole") -> Callable[[Found], float]:
    """CPU seconds per due job, with few (1 %) or all jobs due."""
    return lambda found: median(tick[what] for tick in found[share])


def _table(size: int, rows: dict[str, list[Found]], memory: dict[str, float], entries: Sequence[Entry]) -> Table:
    head = ("", "add one", "bytes each", "idle tick", "due, 1 %: tick", "whole", "due, all: tick", "whole")
    table = Table(f"{size:,} cron jobs, us of CPU", head)
    for entry in entries:
        found = rows[entry.name]
        shares = [per_due(share, what) for share in ("few", "all") for what in ("tick", "whole")]
        columns = [lambda each: each["add"], lambda each: each["idle"], *shares]
        add, idle, *due = [_micro(found, column) for column in columns]
        table.rows.append((entry.label(), add, _bytes(entry, memory), idle, *due))
    return table


def _micro(found: Sequence[Found], of: Callable[[Found], float]) -> str:
    try:
        return f"{least(found, of) * 1e6:.1f}"
    except KeyError:  # APScheduler 4 schedules and runs at once
        return "-"


def _bytes(entry: Entry, memory: dict[str, float]) -> str:
    if entry is OURS:
        return f"{memory['rota']:,.0f} / {memory['rota with events']:,.0f}"
    return f"{memory[entry.name]:,.0f}" if entry.name in memory else "not measured"


def _goals(raw: Raw, memory: dict[str, dict[str, float]], sizes: Sequence[int]) -> list[Goal]:
    smallest, largest = str(sizes[0]), str(sizes[-1])
    views = [(share, what) for share in ("few", "all") for what in ("tick", "whole")]
    goals = [_cheaper(raw[str(size)], size, share, what) for size in sizes for share, what in views]
    goals += [_smaller(memory[str(size)], size) for size in sizes if size <= MEMORY_OF_PEERS]
    for text, of in (
        ("idle tick", lambda each: each["idle"]),
        ("per due job, 1 % due,", per_due("few")),
        ("per due job, all due,", per_due("all")),
    ):
        growth = least(raw[largest][OURS.name], of) / least(raw[smallest][OURS.name], of)
        goals.append(Goal(f"{text} from {sizes[0]:,} to {sizes[-1]:,} jobs (flat)", 1.5, growth, at_least=False))
    return goals


def _cheaper(rows: dict[str, list[Found]], size: int, share: str, what: str) -> Goal:
    """Against the cheapest peer; one that cannot tell its tick alone is compared with the others only as a whole."""
    of = per_due(share, what)
    peers = [found for peer in PEERS if (found := rows.get(peer.name)) and what in found[0][share][0]]
    due = "1 %" if share == "few" else "all"
    cheapest = min(least(found, of) for found in peers)
    return Goal(
        f"per due job, {size:,} jobs, {due} due, {what}, the cheapest peer against ours",
        4.0,
        cheapest / least(rows["rota"], of),
    )


def _smaller(memory: dict[str, float], size: int) -> Goal:
    peers = [memory[peer.name] for peer in PEERS if peer.name in memory]
    return Goal(
        f"bytes each, {size:,} jobs, ours against the smallest peer", 0.5, memory["rota"] / min(peers), at_least=False
    )
