"""PostgreSQL drain: a backlog of no-op async jobs loaded first, then worked off by one node process, fsync on."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.backlog import Backlog, Rows, cpu_ratio, drain, promises, ratio, settings, table
from tests.benchmarks.postgres import SETTINGS, postgres
from tests.benchmarks.process import Entry
from tests.benchmarks.report import Goal, Report

NAME = "postgres-drain"
_SETTINGS: dict[str, dict[str, Any]] = {
    "batch 100": {"batch": 100},
    "batch 100, 4 connections": {"batch": 100, "connections": 4},
    "batch 500, 4 connections": {"batch": 500, "connections": 4},
    "batch 500, 4 connections, uvloop": {"batch": 500, "connections": 4, "uvloop": True},
    "batch 1,000, 4 connections": {"batch": 1_000, "connections": 4},
    "batch 1,000, 4 connections, uvloop": {"batch": 1_000, "connections": 4, "uvloop": True},
    "batch 2,000, 4 connections, uvloop": {"batch": 2_000, "connections": 4, "uvloop": True},
}
PGQUEUER = tuple(
    Entry(f"pgqueuer {name}", "pgqueuer_postgres", each, f"PgQueuer, {name}") for name, each in _SETTINGS.items()
)
PROCRASTINATE = Entry("procrastinate", "procrastinate_postgres")
SAQ = Entry("saq", "saq_postgres")
FLOOR = Entry("floor", "floor_postgres", {}, "floor: batches of 100, 2 connections")
# On uvloop as PgQueuer's best are, and on asyncio's own loop. A node needs no more slots than there are jobs.
MANY = Entry("rota, many jobs", "ours_postgres", {"uvloop": True}, "Rota, as many jobs as runs, uvloop")
MANY_PLAIN = Entry("rota, many jobs, plain", "ours_postgres", {}, "Rota, as many jobs as runs")
FEW = Entry("rota, 200 jobs", "ours_postgres", {"uvloop": True, "concurrency": 200}, "Rota, 200 jobs, uvloop")
FEW_PLAIN = Entry("rota, 200 jobs, plain", "ours_postgres", {"concurrency": 200}, "Rota, 200 jobs")

ONE = Entry("rota, one job", "ours_postgres", {}, "Rota, one job")
# With more slots its worker finds the lock taken, and sleeps until it polls again: one slot is its best.
LOCKED = Entry("procrastinate, lock", "procrastinate_postgres", {"concurrency": 1}, "Procrastinate, one lock")
_LIMITS: dict[str, dict[str, Any]] = {"": {}, ", 4 connections": {"connections": 4}, ", uvloop": {"uvloop": True}}
LIMITED = tuple(
    Entry(f"pgqueuer, limit 1{name}", "pgqueuer_postgres", {"batch": 1, "limit": 1} | more, f"PgQueuer, limit 1{name}")
    for name, more in _LIMITS.items()
)
COMMITS = Entry("floor, one by one", "floor_postgres", {"batch": 1, "connections": 1}, "floor: one commit per run")


def _many(runs: int, slow: int) -> list[Backlog]:
    return [
        *(Backlog(entry, runs, {"jobs": runs}) for entry in (MANY, MANY_PLAIN)),
        *(Backlog(entry, runs, {"jobs": 200}) for entry in (FEW, FEW_PLAIN)),
        *(Backlog(entry, runs) for entry in PGQUEUER),
        *(Backlog(entry, slow) for entry in (PROCRASTINATE, SAQ)),
        Backlog(FLOOR, runs),
    ]


def _one(runs: int, slow: int) -> list[Backlog]:
    return [
        Backlog(ONE, runs, {"jobs": 1}),
        Backlog(LOCKED, slow, {"lock": "one"}),
        *(Backlog(entry, slow) for entry in LIMITED),
        Backlog(COMMITS, runs),
    ]


def run(quick: bool) -> Report:
    """`quick`: a fifth of the runs, one round."""
    rounds = 1 if quick else 5
    many = _many(4_000, 400) if quick else _many(20_000, 2_000)
    one = _one(500, 100) if quick else _one(3_000, 500)
    with postgres() as databases:
        version = databases.version()
        raw = {"many jobs": drain(databases, many, rounds), "one job": drain(databases, one, rounds)}
    cpu = {"cpu": "client us/run", "server_cpu": "server us/run"}
    return Report(
        NAME,
        {"postgres": version, "server": SETTINGS, "rounds": rounds} | settings([*many, *one]),
        raw,
        [table("many jobs", raw["many jobs"], many, cpu), table("one job", raw["one job"], one, cpu)],
        [
            *_goals(MANY, MANY_PLAIN, raw["many jobs"]),
            *_goals(FEW, FEW_PLAIN, raw["many jobs"]),
            *_goals_one(raw["one job"]),
        ],
        promises([*many, *one]),
        [
            f"PostgreSQL {version}, " + ", ".join(SETTINGS),
            "timed from the first execution until the store holds no unfinished run; also to the last execution",
            "to last event: Rota writes two lifecycle events per run; the peers write none",
            "CPU of the client process and of all server processes from the node's start, Rota's to the last event",
            "peers know no jobs, only a queue: 'many jobs' is many rows to them; the slow ones get fewer",
            "ratios are taken in each round, of Rota's better loop to PgQueuer's best setting then; the median of them",
        ],
    )


def _goals(uvloop: Entry, plain: Entry, rows: Rows) -> list[Goal]:
    ours, name = (uvloop, plain), uvloop.name
    return [
        Goal(f"drain, {name}, against Procrastinate", 10.0, ratio(rows, ours, [PROCRASTINATE])),
        Goal(f"drain, {name}, against SAQ", 10.0, ratio(rows, ours, [SAQ])),
        Goal(f"drain, {name}, against PgQueuer, both at their best", 1.5, ratio(rows, ours, PGQUEUER)),
        Goal("  the same, ours on uvloop", None, ratio(rows, uvloop, PGQUEUER)),
        Goal("  the same, ours on asyncio's own loop", None, ratio(rows, plain, PGQUEUER)),
        Goal("  the same to the last execution", None, ratio(rows, ours, PGQUEUER, "executed_wall")),
        Goal("  the same, ours to the last event", None, ratio(rows, ours, PGQUEUER, "wall", "events_wall")),
        Goal("  the same by CPU of client and server", None, cpu_ratio(rows, uvloop, PGQUEUER, "cpu", "server_cpu")),
        Goal(f"drain, {name}, against the floor", None, ratio(rows, ours, [FLOOR])),
    ]


def _goals_one(rows: Rows) -> list[Goal]:
    return [
        Goal("drain, one job, against Procrastinate with a lock", 1.0, ratio(rows, ONE, [LOCKED])),
        Goal("drain, one job, against PgQueuer limited to one", 1.0, ratio(rows, ONE, LIMITED)),
        Goal("drain, one job, against one commit per run", None, ratio(rows, ONE, [COMMITS])),
    ]
