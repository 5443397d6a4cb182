"""PostgreSQL drain: a backlog of no-op async jobs loaded first, then worked off by one node process, fsync on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from attrs import frozen

from tests.benchmarks.postgres import SETTINGS, Databases, postgres
from tests.benchmarks.process import Entry, in_turns, measure
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "postgres-drain"
PGQUEUER = tuple(
    Entry(f"pgqueuer {name}", "pgqueuer_postgres", settings, f"PgQueuer, {name}")
    for name, settings in {
        "batch 10": {"batch": 10},
        "batch 100": {"batch": 100},
        "batch 100, 4 connections": {"batch": 100, "connections": 4},
        "batch 500, 4 connections": {"batch": 500, "connections": 4},
        "batch 100, 4 connections, uvloop": {"batch": 100, "connections": 4, "uvloop": True},
    }.items()
)
PROCRASTINATE = Entry("procrastinate", "procrastinate_postgres")
SAQ = Entry("saq", "saq_postgres")
FLOOR = Entry("floor", "floor_postgres", {}, "floor: batches of 100, 2 connections")
MANY = Entry("rota, many jobs", "ours_postgres", {}, "Rota, as many jobs as runs")
FEW = Entry("rota, 200 jobs", "ours_postgres", {}, "Rota, 200 jobs")

ONE = Entry("rota, one job", "ours_postgres", {}, "Rota, one job")
# With more slots its worker finds the lock taken, and sleeps until it polls again: one slot is its best.
LOCKED = Entry("procrastinate, lock", "procrastinate_postgres", {"concurrency": 1}, "Procrastinate, one lock")
_LIMITS: dict[str, dict[str, Any]] = {"": {}, ", 4 connections": {"connections": 4}, ", uvloop": {"uvloop": True}}
LIMITED = tuple(
    Entry(f"pgqueuer, limit 1{name}", "pgqueuer_postgres", {"batch": 1, "limit": 1} | more, f"PgQueuer, limit 1{name}")
    for name, more in _LIMITS.items()
)
COMMITS = Entry("floor, one by one", "floor_postgres", {"batch": 1, "connections": 1}, "floor: one commit per run")

Rows = dict[str, list[dict[str, Any]]]


@frozen
class Backlog:
    """What is loaded for an entry; its settings go to `load`."""

    entry: Entry
    runs: int
    settings: dict[str, Any]

    @property
    def content(self) -> str:
        """Equal where the same rows are loaded."""
        return f"{self.entry.module} {self.runs} {self.settings}"

    def load(self, databases: Databases) -> str:
        """A database that holds it. The entry's own settings are those of its drain."""
        url = databases.new()
        measure(Entry(self.entry.name, self.entry.module), "load", url=url, runs=self.runs, **self.settings)
        databases.settle_down(url)
        return url


def _many(runs: int, slow: int) -> list[Backlog]:
    return [
        Backlog(MANY, runs, {"jobs": runs}),
        Backlog(FEW, runs, {"jobs": 200}),
        *(Backlog(entry, runs, {}) for entry in PGQUEUER),
        Backlog(PROCRASTINATE, slow, {}),
        Backlog(SAQ, slow, {}),
        Backlog(FLOOR, runs, {}),
    ]


def _one(runs: int, slow: int) -> list[Backlog]:
    return [
        Backlog(ONE, runs, {"jobs": 1}),
        Backlog(LOCKED, slow, {"lock": "one"}),
        *(Backlog(entry, slow, {}) for entry in LIMITED),
        Backlog(COMMITS, runs, {}),
    ]


def run(quick: bool) -> Report:
    """`quick`: a fifth of the runs, one round."""
    rounds = 1 if quick else 3
    many = _many(4_000, 400) if quick else _many(20_000, 2_000)
    one = _one(500, 100) if quick else _one(3_000, 1_000)
    with postgres() as databases:
        version = databases.version()
        raw = {"many jobs": _measure(databases, many, rounds), "one job": _measure(databases, one, rounds)}
    entries = [each.entry for each in (*many, *one)]
    return Report(
        NAME,
        {"postgres": version, "server": SETTINGS, "rounds": rounds}
        | {each.entry.name: {"runs": each.runs, **each.settings, **each.entry.settings} for each in (*many, *one)}
        | {entry.module: entry.fact("SETTINGS") for entry in entries},
        raw,
        [_table(title, raw[title], backlogs) for title, backlogs in (("many jobs", many), ("one job", one))],
        [*_goals_many(raw["many jobs"]), *_goals_one(raw["one job"])],
        list(dict.fromkeys(f"{entry.fact('TITLE')}: {entry.fact('PROMISES')}" for entry in entries)),
        [
            f"PostgreSQL {version}, " + ", ".join(SETTINGS),
            "timed from the first execution until the store holds no unfinished run; also to the last execution",
            "to last event: Rota writes two lifecycle events per run; the peers write none",
            "CPU of the client process and of all server processes from the node's start, Rota's to the last event",
            "peers know no jobs, only a queue: 'many jobs' is many rows to them; the slow ones get fewer",
            "ratios are taken in each round, against the best PgQueuer setting of that round, then their median",
        ],
    )


def _measure(databases: Databases, backlogs: Sequence[Backlog], rounds: int) -> Rows:
    raw: Rows = {each.entry.name: [] for each in backlogs}
    loaded = {each.content: each.load(databases) for each in {each.content: each for each in backlogs}.values()}
    for _, each in in_turns(backlogs, rounds):
        with databases.copy(loaded[each.content]) as url:
            found = measure(each.entry, "drain", url=url, postmaster=databases.postmaster, runs=each.runs)
            raw[each.entry.name].append(found)
    for url in loaded.values():
        databases.drop(url)
    return raw


def _table(title: str, rows: Rows, backlogs: Sequence[Backlog]) -> Table:
    table = Table(
        f"drain, {title}: median (range)",
        ("", "runs/s", "to last execution", "to last event", "client us/run", "server us/run", "runs"),
    )
    for backlog in backlogs:
        found = rows[backlog.entry.name]
        events = [each for each in found if "events_wall" in each]
        table.rows.append(
            (
                backlog.entry.label(),
                spread([rate(each) for each in found]),
                spread([rate(each, "executed_wall") for each in found]),
                spread([rate(each, "events_wall") for each in events]) if events else "",
                *(spread([cost(each, name) for each in found], 1e6) for name in ("cpu", "server_cpu")),
                f"{backlog.runs:,}",
            )
        )
    return table


def rate(found: dict[str, Any], what: str = "wall") -> float:
    return float(found["runs"] / found[what])


def cost(found: dict[str, Any], what: str) -> float:
    """CPU seconds per run, to the last event where there are events."""
    return float(found.get(f"events_{what}", found[what]) / found["runs"])


def _goals_many(rows: Rows) -> list[Goal]:
    goals = []
    for ours in (MANY, FEW):
        goals += [
            Goal(f"drain, {ours.name}, against Procrastinate", 10.0, ratio(rows, ours, [PROCRASTINATE])),
            Goal(f"drain, {ours.name}, against SAQ", 10.0, ratio(rows, ours, [SAQ])),
            Goal(f"drain, {ours.name}, against PgQueuer at its best", 1.5, ratio(rows, ours, PGQUEUER)),
            Goal("  the same to the last execution", None, ratio(rows, ours, PGQUEUER, "executed_wall")),
            Goal("  the same, ours to the last event", None, ratio(rows, ours, PGQUEUER, "wall", "events_wall")),
            Goal(f"drain, {ours.name}, against the floor", None, ratio(rows, ours, [FLOOR])),
        ]
    return goals


def _goals_one(rows: Rows) -> list[Goal]:
    return [
        Goal("drain, one job, against Procrastinate with a lock", 1.0, ratio(rows, ONE, [LOCKED])),
        Goal("drain, one job, against PgQueuer limited to one", 1.0, ratio(rows, ONE, LIMITED)),
        Goal("drain, one job, against one commit per run", None, ratio(rows, ONE, [COMMITS])),
    ]


def ratio(rows: Rows, ours: Entry, others: Sequence[Entry], what: str = "wall", our_what: str = "") -> float:
    """How many times as fast as the fastest of the others, in each round; the median of that."""
    rounds = zip(rows[ours.name], *(rows[other.name] for other in others), strict=True)
    return median(rate(mine, our_what or what) / max(rate(each, what) for each in peers) for mine, *peers in rounds)
