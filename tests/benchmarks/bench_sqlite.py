"""SQLite: draining a backlog and triggering, with an fsync for each commit, beside Huey and bare transactions."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.backlog import Backlog, Rows, cpu_ratio, drain, promises, ratio, settings, table
from tests.benchmarks.process import Entry, in_turns, measure
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "sqlite"
MANY = Entry("rota, many jobs", "ours_sqlite", {}, "Rota, as many jobs as runs")
FEW = Entry("rota, 200 jobs", "ours_sqlite", {}, "Rota, 200 jobs")
ONE = Entry("rota, one job", "ours_sqlite", {}, "Rota, one job")
HUEY = tuple(
    Entry(f"huey, threads {threads}", "huey_sqlite", {"threads": threads}, f"Huey, threads: {threads}")
    for threads in (1, 2, 8, 16)
)
BATCHES = Entry("floor, 100", "floor_sqlite", {"batch": 100}, "floor: 100 per transaction")
COMMITS = Entry("floor, 1", "floor_sqlite", {"batch": 1}, "floor: 1 per transaction")

OURS, PEER = Entry("rota", "ours_sqlite"), Entry("huey", "huey_sqlite")
BATCH, SIZE = "rota, batches of 1,000", 1_000
TRIGGERS: dict[str, tuple[Entry, dict[str, int]]] = {
    f"{entry.name}, {how_many} at once": (entry, {"at_once": how_many})
    for entry in (OURS, PEER)
    for how_many in (1, 10, 100)
} | {
    BATCH: (OURS, {"size": SIZE}),
    **{f"floor, {batch} per transaction": (Entry("floor", "floor_sqlite"), {"batch": batch}) for batch in (1, 100)},
}


class Files:
    """SQLite files in one folder, on the disk that temporary files are on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def new(self) -> str:
        return str(self._folder / f"{next(self._numbers)}.db")

    def filled(self, backlog: Backlog) -> str:
        path = self.new()
        backlog.load(path=path)
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return path

    @contextmanager
    def copy(self, store: str) -> Iterator[dict[str, Any]]:
        path = self.new()
        shutil.copy(store, path)
        try:
            yield {"path": path}
        finally:
            self.drop(path)

    def drop(self, store: str) -> None:
        for path in self._folder.glob(f"{Path(store).name}*"):
            path.unlink()


def run(quick: bool) -> Report:
    """`quick`: a fifth of the runs, one round."""
    runs, slow, rounds = (4_000, 500, 1) if quick else (20_000, 3_000, 3)
    backlogs = [
        Backlog(MANY, runs, {"jobs": runs}),
        Backlog(FEW, runs, {"jobs": 200}),
        Backlog(ONE, slow, {"jobs": 1}),
        *(Backlog(entry, slow) for entry in HUEY),
        Backlog(BATCHES, runs),
        Backlog(COMMITS, slow),
    ]
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        files = Files(Path(folder))
        drained, triggered = drain(files, backlogs, rounds), _trigger(files, slow, rounds)
    return Report(
        NAME,
        {"sqlite": sqlite3.sqlite_version, "rounds": rounds, "triggers": slow} | settings(backlogs),
        {"drain": drained, "trigger": triggered},
        [table("SQLite", drained, backlogs, {"cpu": "CPU us/run"}), _trigger_table(triggered)],
        [*_goals(drained), *_trigger_goals(triggered)],
        promises(backlogs),
        [
            f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL everywhere: an fsync for each commit",
            "timed from the first execution until the store holds no unfinished run; also to the last execution",
            "to last event: Rota writes two lifecycle events per run; Huey writes none",
            "Huey knows one transaction per run, Rota's settle and claim share theirs among all its slots",
            "ratios are taken in each round, against the best number of Huey's threads in it, then their median",
        ],
    )


def _trigger(files: Files, triggers: int, rounds: int) -> Rows:
    raw: Rows = {name: [] for name in TRIGGERS}
    for _, name in in_turns(list(TRIGGERS), rounds):
        entry, how = TRIGGERS[name]
        path = files.new()
        if name == BATCH:
            raw[name].append(measure(entry, "batch", path=path, count=max(triggers, 2 * SIZE), **how))
        else:
            raw[name].append(measure(entry, "trigger", path=path, count=triggers, **how))
        files.drop(path)
    return raw


def _trigger_table(rows: Rows) -> Table:
    found = Table("triggers per second: median (range)", ("", "triggers/s"))
    found.rows.extend((name, spread([each["rate"] for each in each_round])) for name, each_round in rows.items())
    return found


def _goals(rows: Rows) -> list[Goal]:
    return [
        *_goals_against_huey(MANY, rows),
        *_goals_against_huey(FEW, rows),
        Goal("drain, one job, against Huey with one thread", None, ratio(rows, ONE, HUEY[:1])),
        Goal("drain, rota, many jobs, against 100 per transaction", None, ratio(rows, MANY, [BATCHES])),
        Goal("drain, one job, against 1 per transaction", None, ratio(rows, ONE, [COMMITS])),
    ]


def _goals_against_huey(ours: Entry, rows: Rows) -> list[Goal]:
    return [
        Goal(f"drain, {ours.name}, against Huey at its best", 5.0, ratio(rows, ours, HUEY)),
        Goal("  the same, ours to the last event", None, ratio(rows, ours, HUEY, "wall", "events_wall")),
        Goal("  the same by CPU", None, cpu_ratio(rows, ours, HUEY, "cpu")),
    ]


def _trigger_goals(rows: Rows) -> list[Goal]:
    def against(ours: str, other: str) -> float:
        return float(median(mine["rate"] / its["rate"] for mine, its in zip(rows[ours], rows[other], strict=True)))

    cases = [f"{number} at once" for number in (1, 10, 100)]
    return [
        *(Goal(f"trigger, {case}, against Huey", 1.0, against(f"rota, {case}", f"huey, {case}")) for case in cases),
        Goal(
            "trigger, batches of 1,000, against Huey one by one (it knows none)",
            None,
            against(BATCH, "huey, 1 at once"),
        ),
        Goal(
            "trigger, one by one, against a bare insert", None, against("rota, 1 at once", "floor, 1 per transaction")
        ),
    ]
