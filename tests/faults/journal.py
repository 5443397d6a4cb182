"""The first witness: what handlers, nodes and the driver say of themselves, a JSON line each, appended in one write.

A line that was written survives `kill -9` of its writer: it is in the kernel's hands. Monotonic time is the machine's,
so lines of several processes can be compared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen


@frozen
class Entry:
    """One line."""

    kind: str  # begin, end; started, dying, killed, leaving, left; health, resources, refused, starved, burst
    pid: int
    at: float  # monotonic seconds of the machine
    wall: float
    data: dict[str, Any]

    @property
    def run_id(self) -> str:
        return str(self.data["run"])


class Journal:
    """Appends; any number of processes may share the file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(self, kind: str, *, pid: int | None = None, **data: Any) -> None:
        head = {"kind": kind, "pid": pid or os.getpid(), "at": time.monotonic(), "wall": time.time()}
        os.write(self._file, (json.dumps(head | data) + "\n").encode())


def read(path: Path) -> Iterator[Entry]:
    """Every line, in the order written."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        data = json.loads(line)
        yield Entry(data.pop("kind"), data.pop("pid"), data.pop("at"), data.pop("wall"), data)
