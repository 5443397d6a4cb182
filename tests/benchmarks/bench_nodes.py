"""Several node processes on one PostgreSQL database, draining the same backlog; fsync on."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from tests.benchmarks.backlog import Backlog, Rows, cost, rate
from tests.benchmarks.entries.ours_postgres import CONCURRENCY
from tests.benchmarks.postgres import SETTINGS, postgres, process_cpu, query, server_cpu
from tests.benchmarks.process import PATIENCE, ROOT, Entry, command, in_turns, say
from tests.benchmarks.report import Goal, Report, Table, spread

NAME = "nodes"
NODES = (1, 2, 4)
NODE = Entry("rota", "ours_postgres")
_DRAINED = """
SELECT count(*), extract(epoch FROM min(started_at))::float8, extract(epoch FROM max(ended_at))::float8,
    (SELECT array_agg(n ORDER BY n DESC) FROM (SELECT count(*) AS n FROM rota.history GROUP BY node_id) shares)
FROM rota.history
"""


def run(quick: bool) -> Report:
    """Three times the runs of the other drains: the start of four processes is not what is asked for. `quick`: few
    runs, one round."""
    runs, rounds = (4_000, 1) if quick else (60_000, 9)
    backlogs = {
        "as many jobs as runs": Backlog(NODE, runs, {"jobs": runs}),
        "200 jobs": Backlog(NODE, runs, {"jobs": 200}),
    }
    raw: dict[str, Rows] = {case: {str(nodes): [] for nodes in NODES} for case in backlogs}
    with postgres() as databases:
        version = databases.version()
        filled = {case: databases.filled(backlog) for case, backlog in backlogs.items()}
        for _, (nodes, case) in in_turns([(nodes, case) for nodes in NODES for case in backlogs], rounds):
            with databases.copy(filled[case]) as where:
                raw[case][str(nodes)].append(_drain(nodes, runs, backlogs[case].settings["jobs"], **where))
    return Report(
        NAME,
        {"postgres": version, "server": SETTINGS, "rounds": rounds, "runs": runs, "node": NODE.fact("SETTINGS")},
        raw,
        [_table(case, rows) for case, rows in raw.items()],
        [goal for case, rows in raw.items() for goal in _goals(case, rows)],
        [],
        [
            f"PostgreSQL {version}, " + ", ".join(SETTINGS),
            "timed in the database: first start to last end in its history; events until the outbox is empty",
            "nodes keep all finished runs, so that they can be counted",
            "every run is in the history, and the event stores of all nodes together hold two events for each",
            "server and nodes share this machine's cores: more nodes cannot be faster here than the cores allow",
            "'does not fall' is checked with a tenth of tolerance: two equal runs differ by as much",
        ],
    )


def _drain(nodes: int, runs: int, jobs: int, url: str, postmaster: int) -> dict[str, Any]:
    began = time.monotonic()
    with _started(nodes, url, min(jobs, CONCURRENCY)) as processes:  # no more slots than there are jobs
        cpu = server_cpu(postmaster)
        for process in processes:
            _tell(process, "go\n")
        _until(lambda: not query(url, "SELECT 1 FROM rota.model.run LIMIT 1"))
        found = {"runs": runs, "cpu": sum(process_cpu(each.pid) for each in processes)}
        _until(lambda: not query(url, "SELECT 1 FROM rota.outbox LIMIT 1"))
        told = time.time()
        found["server_cpu"] = server_cpu(postmaster) - cpu
        ((count, first, last, shares),) = query(url, _DRAINED)
        assert count == runs, f"{count} of {runs} runs are in the history"
        found |= {"wall": last - first, "events_wall": told - first, "shares": shares}
        events = sum(_end(process) for process in processes)
        assert events == 2 * runs, f"{events} events of {runs} runs"
    say(f"  {nodes} nodes drain runs={runs}: {time.monotonic() - began:.1f} s")
    return found


@contextmanager
def _started(nodes: int, url: str, concurrency: int) -> Iterator[list[subprocess.Popen[str]]]:
    line = command(NODE, "node", url=url, concurrency=concurrency)
    processes = [
        subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(nodes)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> int:
    """How many events it has written."""
    answer, _ = process.communicate(timeout=60)
    return int(json.loads(answer)["events"])


def _until(is_so: Callable[[], bool]) -> None:
    """Looks are rare enough to cost nothing that counts; the end is taken from the history."""
    patience = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < patience, "the nodes do not come to an end"
        time.sleep(0.05)


def _table(case: str, rows: Rows) -> Table:
    head = ("nodes", "runs/s", "to last event", "client us/run", "server us/run", "share of each node")
    table = Table(f"drain, {case}: median (range)", head)
    for nodes, found in rows.items():
        rates = (spread([rate(each, what) for each in found]) for what in ("wall", "events_wall"))
        costs = (spread([cost(each, what) for each in found], 1e6) for what in ("cpu", "server_cpu"))
        table.rows.append((nodes, *rates, *costs, " / ".join(f"{share:,}" for share in found[-1]["shares"])))
    return table


def _goals(case: str, rows: Rows) -> list[Goal]:
    return [
        Goal(f"drain, {case}, {nodes} nodes against one", 0.9, _ratio(rows[str(nodes)], rows["1"]))
        for nodes in NODES[1:]
    ]


def _ratio(several: Sequence[dict[str, Any]], one: Sequence[dict[str, Any]]) -> float:
    return median(rate(each) / rate(alone) for each, alone in zip(several, one, strict=True))
