"""Drain: no-op async jobs, from the first trigger to the last execution, all triggered before the first one runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.benchmarks.process import Entry, in_turns, installed, measure
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "drain"
CASES = {"1,000 jobs": 1_000, "one job": 1}
OURS = Entry("rota", "ours")
PEERS = (
    Entry("huey", "huey_memory", {}, "Huey (memory, one thread)"),
    Entry("huey, 16 threads", "huey_memory", {"threads": 16}, "Huey (memory, 16 threads)"),
    Entry("taskiq", "taskiq_memory"),
    Entry("apscheduler4", "apscheduler4"),
)
SEVERAL = ("huey, 16 threads", "taskiq", "apscheduler4")  # those that run several jobs at once, as Rota does
FLOOR = Entry("floor", "floor")
VARIANTS = (
    Entry("rota, no events", "ours", {"events": False}, "Rota, no event store"),
    Entry("rota, suspends", "ours", {"suspends": True}, "Rota, handler suspends once"),
)
Raw = dict[str, dict[str, list[dict[str, float]]]]


def run(quick: bool) -> Report:
    """`quick`: a tenth of the triggers, one round."""
    runs, rounds = (10_000, 1) if quick else (100_000, 3)
    entries = installed((OURS, *PEERS, FLOOR, *VARIANTS))
    raw = _measure(entries, runs, rounds)
    return Report(
        NAME,
        {"runs": runs, "rounds": rounds, "apscheduler4_runs": runs // 10}
        | {entry.name: entry.fact("SETTINGS") for entry in entries},
        raw,
        [_table(case, rows, entries) for case, rows in raw.items()],
        [goal for case, rows in raw.items() for goal in _goals(case, rows)],
        [f"{entry.label()}: {entry.fact('PROMISES')}" for entry in entries if entry not in VARIANTS],
        [
            f"{runs:,} triggers, APScheduler 4 {runs // 10:,}: it is slow, and slower with more",
            "to last event: Rota writes two lifecycle events per run; the peers write none",
            "CPU: seconds of the whole process, so it hardly depends on what else the machine does",
            "Huey with one thread is fastest because it runs one job at a time; with more, threads wait for each other",
            "ratios are taken in each round, against the fastest peer of that round, then their median",
        ],
    )


def _measure(entries: Sequence[Entry], runs: int, rounds: int) -> Raw:
    raw: Raw = {case: {entry.name: [] for entry in entries} for case in CASES}
    for number, entry in in_turns(entries, rounds):
        for case, jobs in CASES.items():
            if entry in VARIANTS and number:
                continue
            count = runs // 10 if entry.module == "apscheduler4" else runs
            raw[case][entry.name].append(measure(entry, "drain", jobs=jobs, runs=count))
    return raw


def _table(case: str, rows: dict[str, list[dict[str, float]]], entries: Sequence[Entry]) -> Table:
    table = Table(
        f"drain, {case}: median (range)", ("", "runs/s", "to last event, runs/s", "CPU us/run", "least CPU us", "runs")
    )
    for entry in entries:
        found = rows[entry.name]
        events = [each for each in found if "events_wall" in each]
        table.rows.append(
            (
                entry.label(),
                spread([rate(each) for each in found]),
                spread([rate(each, "events_wall") for each in events]) if events else "",
                spread([cost(each) for each in found], 1e6, 1),
                f"{min(map(cost, found)) * 1e6:.1f}",
                f"{found[0]['runs']:,}",
            )
        )
    return table


def rate(found: dict[str, Any], what: str = "wall") -> float:
    return float(found["runs"] / found[what])


def cost(found: dict[str, Any]) -> float:
    """CPU seconds per run, to the last event where there are events."""
    return float(found.get("events_cpu", found["cpu"]) / found["runs"])


def _goals(case: str, rows: dict[str, list[dict[str, float]]]) -> list[Goal]:
    peers = [peer.name for peer in PEERS if peer.name in rows]
    several = [name for name in SEVERAL if name in rows]
    return [
        Goal(f"drain, {case}, rate against the fastest peer", 2.0, _by_rate(rows, peers)),
        Goal(f"drain, {case}, the same by CPU, to the last event", 2.0, _by_cpu(rows, peers)),
        Goal(f"drain, {case}, rate against the fastest that runs several at once", 2.0, _by_rate(rows, several)),
        Goal(f"drain, {case}, the same by CPU, to the last event", 2.0, _by_cpu(rows, several)),
        Goal(f"drain, {case}, rate against bare asyncio.create_task", None, _by_rate(rows, [FLOOR.name])),
    ]


def _by_rate(rows: dict[str, list[dict[str, float]]], names: Sequence[str]) -> float:
    rounds = zip(rows[OURS.name], *(rows[name] for name in names), strict=True)
    return median(rate(ours) / max(map(rate, others)) for ours, *others in rounds)


def _by_cpu(rows: dict[str, list[dict[str, float]]], names: Sequence[str]) -> float:
    rounds = zip(rows[OURS.name], *(rows[name] for name in names), strict=True)
    return median(min(map(cost, others)) / cost(ours) for ours, *others in rounds)
