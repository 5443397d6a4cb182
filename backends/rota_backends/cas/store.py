"""The primitives that the author of a store writes. Their docstrings are the contract, which
`rota_contracts.StoreContract` tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple

from rota.model.capability import Capability
from rota.model.validation import length_only


class Versioned(NamedTuple):
    """A key as it is stored. `version` is above 0 and another one after every write."""

    key: str
    version: int
    value: bytes

    def __repr__(self) -> str:
        return f"Versioned({self.key!r}, {self.version}, {length_only(self.value)})"  # it holds payloads (ACCESS-2)


class Put(NamedTuple):
    """Write `value` (None: delete the key) if the key is at version `expected`: 0 means absent, None whatever it is.

    Deleting an absent key is no error.
    """

    key: str
    expected: int | None
    value: bytes | None

    def __repr__(self) -> str:
        return f"Put({self.key!r}, {self.expected}, {length_only(self.value)})"


class CasStore(ABC):
    """A map from text to bytes with compare-and-set over several keys at once.

    Keys are text without control characters, at most 3,300 bytes in UTF-8, and sort by those bytes. Reads are current:
    what a commit has written, every later read of every node shows. Errors: `StoreUnavailable` when the call certainly
    did nothing, `OutcomeUnknown` when it may have happened; a `commit` is never repeated after it may have happened.
    """

    capabilities: ClassVar[Capability] = Capability.DURABLE | Capability.DISTRIBUTED

    async def open(self) -> None:  # noqa: B027  (most clients connect when first used)
        """Connect."""

    async def close(self) -> None:  # noqa: B027
        """Give everything back; no primitive is called after it, until `open`."""

    @abstractmethod
    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        """The keys that are there, of at most 100."""

    @abstractmethod
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        """In order, at most `limit` (up to 1,001) keys that begin with `prefix` and come after the key `after`."""

    @abstractmethod
    async def commit(self, puts: Sequence[Put]) -> bool:
        """Write all of them, if each key is at its expected version; else write none and say False.

        At most 50 puts, each key once. No reader ever sees a part of them.
        """

    @abstractmethod
    async def now(self) -> datetime:
        """One clock for all nodes, aware, in UTC, to the microsecond if it can (TIME-1)."""

    async def watch(self, prefix: str) -> AsyncGenerator[None]:
        """Say so, soon after a key that begins with `prefix` was written. A hint: some may be lost, some in vain.

        Called only where PUSH_WAKEUP is among the capabilities; when it ends or fails it is called again.
        """
        return
        yield
