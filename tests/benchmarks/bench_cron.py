"""How fast the next occurrence is found: Rota, cronsim, croniter and APScheduler 3, in one run and in turns.

python tests/benchmarks/bench_cron.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from rota.cron import Cron
from rota.cron.plan import plan_for

EXPRESSIONS = (
    *("* * * * *", "*/15 * * * *", "0 8 * * *", "0 3 * * 0", "30 2 1 * *", "0 0 29 2 *", "15,45 9-17 * * 1-5"),
    *("0 0 1 1 *", "0 12 * * MON-FRI", "5 4 * * sun", "0 0 13 * 5", "*/5 0-6 1-15 * *"),
)
ZONES = ("UTC", "Europe/Berlin")
FIRES = 1000
PARSES = 200
START = datetime(2025, 1, 1, tzinfo=UTC)
PROMISES = {
    "rota": "gaps once after the gap, folds on the first pass, any shift; days by the Vixie rule",
    "cronsim": "the same for whole hours; wrong in 30-minute zones and some folds",
    "croniter": "fires fixed times twice in folds",
    "apscheduler3": "day fields must both match; fires twice in folds",
}
PACKAGES = {"rota": "rota", "cronsim": "cronsim", "croniter": "croniter", "apscheduler3": "apscheduler"}


def _start(zone: str) -> datetime:
    return START if zone == "UTC" else START.astimezone(ZoneInfo(zone))


def fire_rota(expression: str, zone: str) -> int:
    """Walk by next_after, as the ticker does; croniter and cronsim iterate, which is their fast way."""
    cron, at = Cron(expression, zone), START
    for _ in range(FIRES):
        at = cron.next_after(at)
    return FIRES


def fire_cronsim(expression: str, zone: str) -> int:
    return sum(1 for _ in islice(CronSim(expression, _start(zone)), FIRES))


def fire_croniter(expression: str, zone: str) -> int:
    walk = croniter(expression, _start(zone))
    for _ in range(FIRES):
        walk.get_next(datetime)
    return FIRES


def fire_apscheduler3(expression: str, zone: str) -> int:
    trigger = CronTrigger.from_crontab(expression, timezone=ZoneInfo(zone))
    at, count = _start(zone), 0
    previous = None
    while count < FIRES:
        following = trigger.get_next_fire_time(previous, at)
        if following is None:  # it gives up where the calendar of its expression ends
            break
        previous = at = following
        count += 1
    return count


def parse_rota(expression: str) -> object:
    return Cron(expression)


def parse_rota_afresh(expression: str) -> object:
    plan_for.cache_clear()
    return Cron(expression)


FIRE: dict[str, Callable[[str, str], int]] = {
    "rota": fire_rota,
    "cronsim": fire_cronsim,
    "croniter": fire_croniter,
    "apscheduler3": fire_apscheduler3,
}
PARSE: dict[str, Callable[[str], object]] = {
    "rota": parse_rota,
    "rota, nothing cached": parse_rota_afresh,
    "cronsim": lambda expression: CronSim(expression, START),
    "croniter": lambda expression: croniter(expression, START),
    "apscheduler3": lambda expression: CronTrigger.from_crontab(expression, timezone=UTC),
}


def _fires_per_second(name: str, zone: str) -> float:
    started = time.process_time()
    fired = sum(FIRE[name](expression, zone) for expression in EXPRESSIONS)
    return fired / (time.process_time() - started)


def _parses_per_second(name: str) -> float:
    started = time.process_time()
    for _ in range(PARSES):
        for expression in EXPRESSIONS:
            PARSE[name](expression)
    return PARSES * len(EXPRESSIONS) / (time.process_time() - started)


def measure(rounds: int) -> dict[str, Any]:
    """Every library once per round, so that a slow moment of the machine meets all of them; medians and raw numbers."""
    raw: dict[str, dict[str, list[float]]] = {column: {} for column in (*ZONES, "parse")}
    for _ in range(rounds):
        for zone in ZONES:
            for name in FIRE:
                raw[zone].setdefault(name, []).append(_fires_per_second(name, zone))
        for name in PARSE:
            raw["parse"].setdefault(name, []).append(_parses_per_second(name))
    medians = {column: {name: median(found) for name, found in rows.items()} for column, rows in raw.items()}
    return {
        "benchmark": "cron",
        "settings": {"rounds": rounds, "fires": FIRES, "expressions": EXPRESSIONS, "start": START.isoformat()},
        "versions": {name: version(package) for name, package in PACKAGES.items()}
        | {"python": platform.python_version()},
        "promises": PROMISES,
        "raw": raw,
        "medians": medians,
        "ratios": {
            column: {name: rows["rota"] / rate for name, rate in rows.items()} for column, rows in medians.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """The medians per second, and in brackets how many times as fast Rota is."""
    lines = [f"{'per second':22}" + "".join(f"{column:>24}" for column in result["medians"])]
    for name in PARSE:
        cells = [_cell(result, column, name) for column in result["medians"]]
        lines.append(f"{name:22}" + "".join(f"{cell:>24}" for cell in cells) + "  " + PROMISES.get(name, ""))
    return "\n".join(lines)


def _cell(result: dict[str, Any], column: str, name: str) -> str:
    rate = result["medians"][column].get(name)
    return "" if rate is None else f"{rate:,.0f} ({result['ratios'][column][name]:.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    result = measure(chosen.rounds)
    sys.stdout.write(table(result) + "\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
