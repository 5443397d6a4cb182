"""Where the numbers come from: versions, cores, load."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from tests.benchmarks.process import apscheduler4

PACKAGES = (
    *("rota", "huey", "taskiq", "apscheduler", "cronsim", "croniter"),
    *("procrastinate", "saq", "pgqueuer", "asyncpg", "psycopg"),
)


def machine() -> dict[str, Any]:
    """The machine and the versions measured on it."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in PACKAGES} | {"apscheduler 4": _apscheduler4()},
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    }


def load() -> list[float]:
    """The load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _apscheduler4() -> str:
    found = [each.version for each in distributions(name="apscheduler", path=[str(apscheduler4())])]
    return found[0] if found else "not installed"
