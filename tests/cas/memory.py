"""A store in memory: the shortest one that keeps the contract of the primitives, and one with rivals in it."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from itertools import islice
from random import Random

from rota.model.capability import Capability
from rota_backends.cas import CasStore, Put, Versioned

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Shelf:
    """What outlives every connection."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.held: dict[str, Versioned] = {}
        self.version = 0
        self.watches: list[tuple[str, asyncio.Event]] = []
        self.is_watched = asyncio.Event()

    def write(self, key: str, value: bytes | None) -> None:
        self.version += 1
        if value is not None:
            if key not in self.held:
                insort(self.order, key)
            self.held[key] = Versioned(key, self.version, value)
        elif self.held.pop(key, None) is not None:
            del self.order[bisect_left(self.order, key)]
        for prefix, changed in self.watches:
            if key.startswith(prefix):
                changed.set()


class MemoryStore(CasStore):
    """Several stores on one shelf are several connections. Every call lets others go first."""

    capabilities = Capability.DURABLE | Capability.PUSH_WAKEUP  # as far as a shelf outlives its connections

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.shelf = shelf or Shelf()
        self.largest_commit = 0

    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        await self._go_last()
        assert len(keys) <= 100
        return {key: self.shelf.held[key] for key in keys if key in self.shelf.held}

    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        await self._go_last()
        assert limit <= 1001
        order = self.shelf.order
        start = max(bisect_left(order, prefix), bisect_right(order, after))
        found: list[Versioned] = []
        for key in islice(order, start, start + limit):
            if not key.startswith(prefix):
                break
            found.append(self.shelf.held[key])
        return found

    async def commit(self, puts: Sequence[Put]) -> bool:
        await self._go_last()
        assert len({put.key for put in puts}) == len(puts) <= 50
        assert all(len(put.key.encode()) <= 3300 and not _CONTROL.search(put.key) for put in puts)
        if any(put.expected is not None and put.expected != self._version(put.key) for put in puts):
            return False
        for put in puts:
            self.shelf.write(put.key, put.value)
        self.largest_commit = max(self.largest_commit, len(puts))
        return True

    async def now(self) -> datetime:
        return datetime.now(UTC)

    async def watch(self, prefix: str) -> AsyncGenerator[None]:
        watch = (prefix, asyncio.Event())
        self.shelf.watches.append(watch)
        self.shelf.is_watched.set()
        try:
            while True:
                await watch[1].wait()
                watch[1].clear()
                yield
        finally:
            self.shelf.watches.remove(watch)

    def _version(self, key: str) -> int:
        found = self.shelf.held.get(key)
        return 0 if found is None else found.version

    async def _go_last(self) -> None:
        """Where a network would be."""
        await asyncio.sleep(0)


class RivalStore(MemoryStore):
    """Somebody else is often faster: before a commit compares, a key it relies on is written again by another."""

    def __init__(self, shelf: Shelf | None = None, *, chance: float = 0.3, seed: object = 0) -> None:
        super().__init__(shelf)
        self.preempted = 0
        self._chance = chance
        self._random = Random(str(seed))

    async def commit(self, puts: Sequence[Put]) -> bool:
        for put in puts:
            if put.expected and put.key in self.shelf.held and self._random.random() < self._chance:
                self.preempted += 1
                self.shelf.write(put.key, self.shelf.held[put.key].value)
        return await super().commit(puts)

    async def _go_last(self) -> None:
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 5))):
            await asyncio.sleep(0)
