"""Run ids: UUID version 7, so that they sort by time in a store's index; made without a system call."""

from __future__ import annotations

import os
import random
from time import time_ns
from uuid import UUID, SafeUUID

_random = random.Random(os.urandom(32))
_set = object.__setattr__
_new = object.__new__
_UNKNOWN = SafeUUID.unknown
_VERSION = 7 << 76
_VARIANT = 2 << 62


def _reseed() -> None:
    """A forked process must not repeat its parent's ids."""
    _random.seed(os.urandom(32))


os.register_at_fork(after_in_child=_reseed)


def new_run_id() -> UUID:
    """48 bits of milliseconds, 74 random bits."""
    bits = _random.getrandbits(74)
    value = (time_ns() // 1_000_000 << 80) | _VERSION | ((bits >> 62) << 64) | _VARIANT | (bits & 0x3FFFFFFFFFFFFFFF)
    run_id: UUID = _new(UUID)
    _set(run_id, "int", value)  # UUID's own constructor checks again, at three times the cost
    _set(run_id, "is_safe", _UNKNOWN)
    return run_id


def new_node_id() -> str:
    """A random id for each start, never the host name (LEASE-6)."""
    return f"node-{os.urandom(8).hex()}"
