"""Stores that break one promise of the primitives (STORE)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta

from rota_backends.cas import Put, Versioned
from rota_contracts import store
from tests.cas.memory import MemoryStore
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, replaced

_LARGE = 500_000


class GivesAbsentKeys(MemoryStore):
    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return {**{key: Versioned(key, 0, b"") for key in keys}, **await super().get(keys)}


class GetsFiftyKeys(MemoryStore):
    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return await super().get(keys[:50])


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


class DoesNotCompare(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([Put(put.key, None, put.value) for put in puts])


class TakesZeroForAnything(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([Put(put.key, put.expected or None, put.value) for put in puts])


class TakesEmptyForAbsent(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([Put(put.key, put.expected, put.value or None) for put in puts])


class NeverReplaces(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return not any(put.expected for put in puts) and await super().commit(puts)


class DeletesAnyVersion(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([put if put.value is not None else put._replace(expected=None) for put in puts])


class DeletesOnlyWhatIsThere(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        is_absent = any(put.value is None and put.key not in self.shelf.held for put in puts)
        return not is_absent and await super().commit(puts)


class TakesTwentyPuts(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return len(puts) <= 20 and await super().commit(puts)


class CutsLargeValues(MemoryStore):
    async def commit(self, puts: Sequence[Put]) -> bool:
        return await super().commit([put._replace(value=put.value and put.value[:_LARGE]) for put in puts])


class ComparesBeforeItWrites(MemoryStore):
    """Compare and write are two steps, and others come in between."""

    async def commit(self, puts: Sequence[Put]) -> bool:
        if any(put.expected is not None and put.expected != self._version(put.key) for put in puts):
            return False
        await asyncio.sleep(0)
        return await super().commit([put._replace(expected=None) for put in puts])


class ScansFromAfterOn(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        found = await super().scan(prefix, after, limit)
        return [self.shelf.held[after], *found][:limit] if after in self.shelf.held else found


class ScansPastItsPrefix(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return await super().scan(prefix.rstrip("/"), after, limit)


class ScansOnlyAfterWhatIsThere(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return [] if after and after not in self.shelf.held else await super().scan(prefix, after, limit)


class ScansWithoutVersions(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return [each._replace(version=each.version + 1000) for each in await super().scan(prefix, after, limit)]


class IgnoresLimits(MemoryStore):
    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        return await super().scan(prefix, after, 1000)


class SaysNoTimeZone(MemoryStore):
    async def now(self) -> datetime:
        return datetime.now()  # noqa: DTZ005  (that is the fault)


class GoesBack(MemoryStore):
    _asked = 0

    async def now(self) -> datetime:
        self._asked += 1
        return await super().now() - timedelta(seconds=self._asked)


class WatchesNothing(MemoryStore):
    async def watch(self, prefix: str) -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield


FAULTS = [
    Fault("absent keys are given as empty ones", "STORE-1", of(
        "STORE-1", "what_is_absent_is_left_out",
    ), GivesAbsentKeys),
    Fault("an empty value is absent", "STORE-1", of(
        "STORE-1", "bytes_and_names_come_back_as_they_were",
    ), TakesEmptyForAbsent),
    Fault("get takes fifty keys only", "STORE-1", of("STORE-1", "a_hundred_keys_are_one_get"), GetsFiftyKeys),
    Fault("no put that expects a version is written", "STORE-2", of(
        "STORE-2", "a_put_at_the_version_it_expects_is_written",
    ), NeverReplaces),
    Fault("a commit does not compare", "STORE-2", of(
        "STORE-2", "a_put_at_another_version_is_not_written", "zero_expects_nothing_there",
        "one_key_in_the_way_stops_all_of_them",
        "a_guarded_delete_deletes_only_what_it_knows", "of_many_who_are_first_one_is", "nobody_loses_an_increment",
    ), DoesNotCompare),
    Fault("zero expects anything", "STORE-2", of(
        "STORE-2", "zero_expects_nothing_there", "of_many_who_are_first_one_is",
    ), TakesZeroForAnything),
    Fault("a commit writes the puts that it can", "STORE-2", of(
        "STORE-2", "one_key_in_the_way_stops_all_of_them",
    ), WritesWhatItCan),
    Fault("a delete does not compare", "STORE-2", of(
        "STORE-2", "a_guarded_delete_deletes_only_what_it_knows",
    ), DeletesAnyVersion),
    Fault("an absent key cannot be deleted", "STORE-2", of(
        "STORE-2", "deleting_what_is_absent_is_no_error",
    ), DeletesOnlyWhatIsThere),
    Fault("a commit takes twenty puts only", "STORE-2", of("STORE-2", "fifty_puts_are_one_commit"), TakesTwentyPuts),
    Fault("large values are cut", "STORE-2", of("STORE-2", "a_large_value_is_taken"), CutsLargeValues),
    Fault("compare and write are two steps", "STORE-2", of(
        "STORE-2", "of_many_who_are_first_one_is", "nobody_loses_an_increment",
    ), ComparesBeforeItWrites),
    Fault("versions are counted per key", "STORE-3", of(
        "STORE-3", "a_version_of_what_was_deleted_is_not_met_again", "every_write_gives_a_new_version_above_zero",
    ), CountsPerKey),
    Fault("a scan begins with the key it was to come after", "STORE-4", of(
        "STORE-4", "pages_of_a_scan_leave_nothing_out_and_repeat_nothing",
    ), ScansFromAfterOn),
    Fault("a scan goes past its prefix", "STORE-4", of(
        "STORE-4", "a_scan_is_in_order_of_code_points_and_stays_under_its_prefix",
    ), ScansPastItsPrefix),
    Fault("a scan ignores its limit", "STORE-4", of(
        "STORE-4", "pages_of_a_scan_leave_nothing_out_and_repeat_nothing",
    ), IgnoresLimits),
    Fault("a scan ends at a key that is gone", "STORE-4", of(
        "STORE-4", "a_scan_goes_on_after_a_key_that_is_gone",
    ), ScansOnlyAfterWhatIsThere),
    Fault("a scan gives other versions than a get", "STORE-4", of(
        "STORE-4", "a_scan_gives_versions_that_can_be_expected",
    ), ScansWithoutVersions),
    Fault("the time has no zone", "STORE-5", of("STORE-5", "time_is_aware_and_does_not_go_back"), SaysNoTimeZone),
    Fault("the time goes back", "STORE-5", of("STORE-5", "time_is_aware_and_does_not_go_back"), GoesBack),
    Fault("a watch tells nothing", "STORE-6", of(
        "STORE-6", "a_watch_tells_of_writes_under_its_prefix",
    ), WatchesNothing, replaced(store, "TOLD_WITHIN", 0.2)),
]  # fmt: skip
