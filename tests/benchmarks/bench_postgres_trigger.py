"""PostgreSQL triggers: how many a second, and how soon a triggered run starts when little is going on; fsync on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from tests.benchmarks.backlog import Rows
from tests.benchmarks.counting import percentiles
from tests.benchmarks.postgres import SETTINGS, Databases, postgres
from tests.benchmarks.process import Entry, in_turns, measure
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "postgres-trigger"
OURS = Entry("rota", "ours_postgres")
PEERS = tuple(Entry(name, f"{name}_postgres") for name in ("procrastinate", "saq", "pgqueuer"))
FLOOR = Entry("floor", "floor_postgres")
ENTRIES = (OURS, *PEERS, FLOOR)
OUTSIDE = Entry("rota, outside", "ours_postgres", {"outside": True}, "Rota, triggered as from another process")
CASES = {"one by one": 1, "10 at once": 10, "100 at once": 100}
BATCH = "batches of 1,000"
BATCHED = tuple(entry for entry in ENTRIES if entry.name != "saq")  # it has no call for many
PAUSE = 0.1
WARM_UP = 20  # of a worker's life: two seconds
Raw = dict[str, Rows]


def run(quick: bool) -> Report:
    """`quick`: fewer triggers, one round."""
    triggers, waits, rounds = (500, 30, 1) if quick else (2_000, 125, 5)
    latency_rounds = 2 * rounds
    with postgres() as databases:
        version = databases.version()
        rates, waited = _rates(databases, triggers, rounds), _latencies(databases, waits, latency_rounds)
    return Report(
        NAME,
        {"postgres": version, "server": SETTINGS, "rounds": rounds, "triggers": triggers, "batched": 10 * triggers}
        | {"latency_rounds": latency_rounds, "latency_triggers": waits, "pause_seconds": PAUSE},
        {"rates": rates, "latency": waited},
        [_rate_table(rates), _latency_table(waited)],
        [*_rate_goals(rates), *_latency_goals(waited)],
        [f"{entry.label()}: {entry.fact('PROMISES')}" for entry in ENTRIES],
        [
            f"PostgreSQL {version}, " + ", ".join(SETTINGS),
            f"{triggers:,} triggers, {10 * triggers:,} in batches; at most 20 connections, Rota with its default of 4",
            "batches are calls with 1,000 triggers each; the floor is INSERT, and COPY for batches",
            f"latency: {latency_rounds} rounds of {waits} triggers, each {PAUSE * 1000:g} ms after the last started",
            "  a node listens; rounds are shorter than the slow spells of a shared machine, which meet one entry",
            "ratios: the peer whose median is best, in each round, then their median; also those taken otherwise",
            "'as from another process': by connections of their own, so the node learns of it through the database",
        ],
    )


@contextmanager
def _fresh(databases: Databases) -> Iterator[str]:
    url = databases.new()
    databases.run("CHECKPOINT")
    try:
        yield url
    finally:
        databases.drop(url)


def _rates(databases: Databases, triggers: int, rounds: int) -> Raw:
    raw: Raw = {case: {entry.name: [] for entry in ENTRIES} for case in CASES}
    raw[BATCH] = {entry.name: [] for entry in BATCHED}
    for _, entry in in_turns(ENTRIES, rounds):
        for case, at_once in CASES.items():
            with _fresh(databases) as url:
                raw[case][entry.name].append(measure(entry, "trigger", url=url, count=triggers, at_once=at_once))
        if entry in BATCHED:
            with _fresh(databases) as url:
                raw[BATCH][entry.name].append(measure(entry, "batch", url=url, count=10 * triggers, size=1_000))
    return raw


def _latencies(databases: Databases, waits: int, rounds: int) -> Rows:
    entries = (OURS, OUTSIDE, *PEERS, FLOOR)
    raw: Rows = {entry.name: [] for entry in entries}
    for _, entry in in_turns(entries, rounds):
        with _fresh(databases) as url:
            raw[entry.name].append(measure(entry, "latency", url=url, count=waits, pause=PAUSE, warm_up=WARM_UP))
    return raw


def _rate_table(raw: Raw) -> Table:
    table = Table("triggers per second: median (range)", ("", *raw))
    for entry in ENTRIES:
        found = [raw[case].get(entry.name, []) for case in raw]
        cells = (spread([each["rate"] for each in rows]) if rows else "" for rows in found)
        table.rows.append((entry.label(), *cells))
    return table


def _latency_table(raw: Rows) -> Table:
    table = Table("trigger to start in ms: all rounds (range of the rounds)", ("", "p50", "p90", "p99", "slowest"))
    for entry in (OURS, OUTSIDE, *PEERS, FLOOR):
        cells = (_milliseconds(raw[entry.name], name) for name in ("p50", "p90", "p99", "p100"))
        table.rows.append((entry.label(), *cells))
    return table


def _milliseconds(rows: Sequence[dict[str, Any]], name: str) -> str:
    rounds = [each[name] * 1e3 for each in rows]
    return f"{_together(rows)[name] * 1e3:.1f} ({min(rounds):.1f}-{max(rounds):.1f})"


def _together(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    return percentiles([wait for each in rows for wait in each["waits"]])


def _rate_goals(raw: Raw) -> list[Goal]:
    found = []
    for case, rows in raw.items():
        peers = [rows[peer.name] for peer in PEERS if peer.name in rows]
        best = [max(each["rate"] for each in others) for others in zip(*peers, strict=True)]
        floor = [each["rate"] for each in rows[FLOOR.name]]
        mine = [each["rate"] for each in rows[OURS.name]]
        found.append(Goal(f"trigger, {case}, against the fastest peer", 1.0, _median_ratio(mine, best)))
        found.append(Goal(f"trigger, {case}, against the floor", None, _median_ratio(mine, floor)))
    return found


def _latency_goals(raw: Rows) -> list[Goal]:
    found = []
    for ours in (OURS, OUTSIDE):
        for name in ("p50", "p99"):
            peers = [[each[name] for each in raw[peer.name]] for peer in PEERS]
            mine = [each[name] for each in raw[ours.name]]
            told = f"latency {name}, {ours.name}, the best peer's against ours"
            found.append(Goal(told, 1.0, _median_ratio(min(peers, key=median), mine)))
            # The least of three is less than each of them is wont to be; a slow spell of the machine meets one entry.
            least = [min(others) for others in zip(*peers, strict=True)]
            found.append(Goal("  the same, the least of all peers' in each round", None, _median_ratio(least, mine)))
            together = min(_together(raw[peer.name])[name] for peer in PEERS) / _together(raw[ours.name])[name]
            found.append(Goal("  the same, all rounds together", None, together))
    return found


def _median_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    return median(mine / other for mine, other in zip(ours, others, strict=True))
