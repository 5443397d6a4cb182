"""The store in memory keeps the contract of the primitives, and stores that break one of them do not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from rota_backends.cas import CasStore, Put, Versioned
from rota_contracts import StoreContract
from tests.cas.memory import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> CasStore:
        return MemoryStore()


class CountsPerKey(MemoryStore):
    """A key made again begins at its first version."""

    async def commit(self, puts: Sequence[Put]) -> bool:
        held = dict(self.shelf.held)
        done = await super().commit(puts)
        for put in puts:
            if done and put.value is not None:
                version = held[put.key].version + 1 if put.key in held else 1
                self.shelf.held[put.key] = Versioned(put.key, version, put.value)
        return done


class WritesWhatItCan(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return all([await super(WritesWhatItCan, self).commit([put]) for put in puts])


class TakesZeroForAnything(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([Put(put.key, put.expected or None, put.value) for put in puts])


class TakesEmptyForAbsent(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([Put(put.key, put.expected, put.value or None) for put in puts])


class ScansFromAfterOn(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        found = await super().scan(prefix, after, limit)
        return [self.shelf.held[after], *found][:limit] if after in self.shelf.held else found


class ScansPastItsPrefix(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return await super().scan(prefix.rstrip("/"), after, limit)


class IgnoresLimits(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return await super().scan(prefix, after, 1000)


class SaysNoTimeZone(MemoryStore):
    async def now(self) -> datetime:
        return datetime.now()  # noqa: DTZ005  (that is what is wrong with it)


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (CountsPerKey, "a_version_of_what_was_deleted_is_not_met_again"),
        (WritesWhatItCan, "one_key_in_the_way_stops_all_of_them"),
        (TakesZeroForAnything, "zero_expects_nothing_there"),
        (TakesZeroForAnything, "of_many_who_are_first_one_is"),
        (TakesEmptyForAbsent, "bytes_and_names_come_back_as_they_were"),
        (ScansFromAfterOn, "pages_of_a_scan_leave_nothing_out_and_repeat_nothing"),
        (ScansPastItsPrefix, "a_scan_is_in_order_of_code_points_and_stays_under_its_prefix"),
        (IgnoresLimits, "pages_of_a_scan_leave_nothing_out_and_repeat_nothing"),
        (SaysNoTimeZone, "time_is_aware_and_does_not_go_back"),
    ],
)
def test_a_store_that_breaks_a_promise_is_caught(broken: type[MemoryStore], caught_by: str) -> None:
    with pytest.raises((AssertionError, KeyError, TypeError)):
        getattr(StoreContract(), f"test_{caught_by}")(broken())
