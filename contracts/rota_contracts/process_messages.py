"""What a clause and a node in another process say to each other: one pickle in base64 per line.

Both ends are processes of one user and one test, so pickles are as safe here as the code itself.
"""

from __future__ import annotations

import base64
import pickle
from datetime import datetime
from typing import Any
from uuid import UUID

from attrs import frozen

LONGEST_LINE = 4 * 1024 * 1024


@frozen
class Begun:
    """A handler was called."""

    pid: int
    job_id: str
    run_id: UUID
    attempt: int
    due: datetime | None


@frozen
class Answer:
    """What became of the request of that number."""

    number: int
    value: Any = None
    error: str | None = None


def encoded(message: object) -> bytes:
    """One line."""
    return base64.b64encode(pickle.dumps(message)) + b"\n"


def decoded(line: bytes) -> Any:
    """The message of a line."""
    return pickle.loads(base64.b64decode(line))
