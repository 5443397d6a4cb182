"""Measures Rota beside its peers: python -m tests.benchmarks [--quick] [--only NAME] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    bench_cron,
    bench_drain,
    bench_history,
    bench_latency,
    bench_nodes,
    bench_postgres_drain,
    bench_postgres_trigger,
    bench_schedules,
    bench_sqlite,
)
from tests.benchmarks.machine import load, machine
from tests.benchmarks.report import Goal, Report, Table


def run_cron(quick: bool) -> Report:
    """The cron benchmark measures in this process: nothing there runs beside it."""
    result = bench_cron.measure(1 if quick else 3)
    goals = [
        Goal(f"cron next_after, {zone}, against cronsim", 8.0, result["ratios"][zone]["cronsim"])
        for zone in bench_cron.ZONES
    ]
    promises = [f"{name}: {text}" for name, text in result["promises"].items()]
    return Report("cron", result["settings"], result["raw"], [_cron_table(result)], goals, promises)


def _cron_table(result: dict[str, Any]) -> Table:
    table = Table("per second of CPU, medians (how many times as fast Rota is)", ("", *result["medians"]))
    for name in bench_cron.PARSE:
        table.rows.append((name, *(_cron_cell(result, column, name) for column in result["medians"])))
    return table


def _cron_cell(result: dict[str, Any], column: str, name: str) -> str:
    rate = result["medians"][column].get(name)
    return "" if rate is None else f"{rate:,.0f} ({result['ratios'][column][name]:.1f}x)"


BENCHES: dict[str, Callable[[bool], Report]] = {
    "cron": run_cron,
    bench_drain.NAME: bench_drain.run,
    bench_latency.NAME: bench_latency.run,
    bench_schedules.NAME: bench_schedules.run,
    bench_postgres_drain.NAME: bench_postgres_drain.run,
    bench_postgres_trigger.NAME: bench_postgres_trigger.run,
    bench_nodes.NAME: bench_nodes.run,
    bench_history.NAME: bench_history.run,
    bench_sqlite.NAME: bench_sqlite.run,
}


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, one round: does it run, not how fast")
    parser.add_argument("--only", choices=BENCHES, action="append", help="only this one; may be repeated")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where the raw numbers go")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the raw numbers."""
    chosen = _chosen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is told to end stops its servers first
    began = time.monotonic()
    result: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "quick": chosen.quick, **machine(), "benchmarks": {}}
    reports: list[Report] = []
    print(_machine_line(result))
    for name in chosen.only or BENCHES:
        before = load()
        report = BENCHES[name](chosen.quick)
        reports.append(report)
        result["benchmarks"][name] = report.as_json() | {"load_before": before, "load_after": load()}
        print(f"\n{report.text()}\n\nload averages {before} before, {load()} after", flush=True)
    _write(chosen.json, result)
    _summary(reports, time.monotonic() - began, chosen.json)


def _machine_line(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"{result['python']} on {result['cores']} cores, {result['processor']}, load averages {load()}\n{versions}"


def _write(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")


def _summary(reports: list[Report], seconds: float, path: Path) -> None:
    goals = [goal for report in reports for goal in report.goals if goal.goal is not None]
    missed = [goal for goal in goals if not goal.holds]
    print(f"\n{len(goals) - len(missed)} of {len(goals)} goals reached in {seconds:.0f} s; raw numbers in {path}")
    for goal in missed:
        print(f"  {goal.line()}")


if __name__ == "__main__":
    main()
