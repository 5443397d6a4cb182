"""The contract of a `CasStore`: what its primitives promise, before a scheduler is built on them.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> CasStore:
            return MyStore(prefix=f"{uuid4()}/")  # empty, and not open yet

Every clause has an event loop of its own, in which the store is opened and closed. All keys begin with j, k or l.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from rota.model.capability import Capability
from rota_backends.cas import CasStore, Put, Versioned
from rota_contracts.clause import clause
from rota_contracts.contract import Contract, made_of


async def _put(store: CasStore, **values: bytes) -> dict[str, Versioned]:
    assert await store.commit([Put(f"k/{name}", None, value) for name, value in values.items()])
    return await store.get([f"k/{name}" for name in values])


TOLD_WITHIN = 20.0  # seconds


class StoreClauses:
    """STORE: the five primitives."""

    @clause("STORE-1", "get gives the keys that are there and leaves out the others")
    async def test_what_is_absent_is_left_out(self, store: CasStore) -> None:
        await _put(store, a=b"1")
        found = await store.get(["k/a", "k/nothing"])
        assert {key: each.value for key, each in found.items()} == {"k/a": b"1"}

    @clause("STORE-1", "keys and values come back byte for byte, an empty value too")
    async def test_bytes_and_names_come_back_as_they_were(self, store: CasStore) -> None:
        key, value = "k/ä/𝄞/50%/'\"\\ x", bytes(range(256))
        assert await store.commit([Put(key, 0, value), Put("k/empty", 0, b"")])
        found = await store.get([key, "k/empty"])
        assert {each.key: each.value for each in found.values()} == {key: value, "k/empty": b""}

    @clause("STORE-3", "every write gives its key a new version above zero, also after a delete")
    async def test_every_write_gives_a_new_version_above_zero(self, store: CasStore) -> None:
        versions = [(await _put(store, a=b"same"))["k/a"].version for _ in range(3)]
        assert await store.commit([Put("k/a", None, None)])
        versions.append((await _put(store, a=b"same"))["k/a"].version)
        assert len(set(versions)) == 4
        assert min(versions) > 0

    @clause("STORE-2", "a put at the version it expects is written")
    async def test_a_put_at_the_version_it_expects_is_written(self, store: CasStore) -> None:
        version = (await _put(store, a=b"1"))["k/a"].version
        assert await store.commit([Put("k/a", version, b"2")])
        assert (await store.get(["k/a"]))["k/a"].value == b"2"

    @clause("STORE-2", "a put that expects another version is refused and writes nothing")
    async def test_a_put_at_another_version_is_not_written(self, store: CasStore) -> None:
        version = (await _put(store, a=b"1"))["k/a"].version
        await _put(store, a=b"2")
        assert not await store.commit([Put("k/a", version, b"3")])
        assert (await store.get(["k/a"]))["k/a"].value == b"2"

    @clause("STORE-2", "a put that expects version 0 is written only where the key is absent")
    async def test_zero_expects_nothing_there(self, store: CasStore) -> None:
        assert await store.commit([Put("k/a", 0, b"1")])
        assert not await store.commit([Put("k/a", 0, b"2")])
        assert await store.commit([Put("k/a", None, None)])
        assert await store.commit([Put("k/a", 0, b"3")])

    @clause("STORE-3", "the version of a deleted key is never met again, also when the key is made anew")
    async def test_a_version_of_what_was_deleted_is_not_met_again(self, store: CasStore) -> None:
        version = (await _put(store, a=b"1"))["k/a"].version
        assert await store.commit([Put("k/a", version, None)])
        assert not await store.commit([Put("k/a", version, b"2")])
        await _put(store, a=b"1")
        assert not await store.commit([Put("k/a", version, b"2")])

    @clause("STORE-2", "where one put of a commit is refused, none of them is written")
    async def test_one_key_in_the_way_stops_all_of_them(self, store: CasStore) -> None:
        await _put(store, a=b"1", b=b"1")
        assert not await store.commit([Put("k/a", None, b"2"), Put("k/b", 0, b"2"), Put("k/c", 0, b"2")])
        assert [each.value for each in await store.scan("k/")] == [b"1", b"1"]

    @clause("STORE-2", "a delete at another version than it expects deletes nothing")
    async def test_a_guarded_delete_deletes_only_what_it_knows(self, store: CasStore) -> None:
        version = (await _put(store, a=b"1"))["k/a"].version
        await _put(store, a=b"2")
        assert not await store.commit([Put("k/a", version, None)])
        assert "k/a" in await store.get(["k/a"])

    @clause("STORE-2", "deleting an absent key is no error")
    async def test_deleting_what_is_absent_is_no_error(self, store: CasStore) -> None:
        assert await store.commit([Put("k/nothing", None, None), Put("k/a", 0, b"1")])

    @clause("STORE-2", "one commit takes fifty puts")
    async def test_fifty_puts_are_one_commit(self, store: CasStore) -> None:
        assert await store.commit([Put(f"k/{number:03}", 0, b"x") for number in range(50)])
        assert len(await store.scan("k/")) == 50

    @clause("STORE-1", "one get takes a hundred keys")
    async def test_a_hundred_keys_are_one_get(self, store: CasStore) -> None:
        await _put(store, a=b"1")
        assert list(await store.get([*(f"k/{number}" for number in range(99)), "k/a"])) == ["k/a"]

    @clause("STORE-2", "a value of 700,000 bytes is stored")
    async def test_a_large_value_is_taken(self, store: CasStore) -> None:
        large = b"x" * 700_000  # a definition and a payload at their limit, in base64
        assert (await _put(store, a=large))["k/a"].value == large

    @clause("STORE-2", "of concurrent commits that all expect an absent key, exactly one is written")
    async def test_of_many_who_are_first_one_is(self, store: CasStore) -> None:
        async def first() -> bool:
            return await store.commit([Put("k/a", 0, b"mine")])

        assert sum(await asyncio.gather(*(first() for _ in range(8)))) == 1

    @clause("STORE-2", "concurrent read-and-commit loops lose no update")
    async def test_nobody_loses_an_increment(self, store: CasStore) -> None:
        async def increment() -> None:
            while True:
                found = (await store.get(["k/n"])).get("k/n")
                version, value = (0, 0) if found is None else (found.version, int(found.value))
                if await store.commit([Put("k/n", version, str(value + 1).encode())]):
                    return

        await asyncio.gather(*(increment() for _ in range(12)))
        assert (await store.get(["k/n"]))["k/n"].value == b"12"

    @clause("STORE-4", "a scan is in order of code points and gives only keys under its prefix")
    async def test_a_scan_is_in_order_of_code_points_and_stays_under_its_prefix(self, store: CasStore) -> None:
        names = ["k/", "k/Z", "k/a", "k/a/b", "k/ä", "k/\uffee", "k/𝄞", "j/x", "k", "k0", "l/x"]
        assert await store.commit([Put(name, 0, b"x") for name in reversed(names)])
        assert [each.key for each in await store.scan("k/")] == names[:7]

    @clause("STORE-4", "the pages of a scan respect their limit, leave out no key and repeat none")
    async def test_pages_of_a_scan_leave_nothing_out_and_repeat_nothing(self, store: CasStore) -> None:
        assert await store.commit([Put(f"k/{number:02}", 0, b"x") for number in range(10)])
        seen: list[str] = []
        while page := await store.scan("k/", seen[-1] if seen else "", 3):
            assert len(page) <= 3
            seen += [each.key for each in page]
            assert len(seen) <= 10
        assert seen == [f"k/{number:02}" for number in range(10)]

    @clause("STORE-4", "a scan goes on after a key that was deleted meanwhile")
    async def test_a_scan_goes_on_after_a_key_that_is_gone(self, store: CasStore) -> None:
        await _put(store, a=b"1", b=b"1", c=b"1")
        assert await store.commit([Put("k/b", None, None)])
        assert [each.key for each in await store.scan("k/", "k/b")] == ["k/c"]

    @clause("STORE-4", "a commit can expect the versions that a scan gave")
    async def test_a_scan_gives_versions_that_can_be_expected(self, store: CasStore) -> None:
        await _put(store, a=b"1")
        (found,) = await store.scan("k/")
        assert await store.commit([Put("k/a", found.version, b"2")])

    @clause("STORE-5", "now is aware, in UTC, within five minutes of this machine's clock, and does not go back")
    async def test_time_is_aware_and_does_not_go_back(self, store: CasStore) -> None:
        first, second = await store.now(), await store.now()
        assert first <= second
        assert first.utcoffset() == timedelta(0)
        assert abs(datetime.now(UTC) - first) < timedelta(minutes=5)

    @clause("STORE-6", "a watch tells of writes under its prefix", needs=Capability.PUSH_WAKEUP)
    async def test_a_watch_tells_of_writes_under_its_prefix(self, store: CasStore) -> None:
        told = asyncio.Event()

        async def listen() -> None:
            async with aclosing(store.watch("k/")) as changes:
                async for _ in changes:
                    told.set()

        listening = asyncio.create_task(listen())
        try:
            deadline = time.monotonic() + TOLD_WITHIN
            while not told.is_set():  # writes before the watch began need not be told
                assert time.monotonic() < deadline, f"a watch told of no write for {TOLD_WITHIN} seconds"
                await _put(store, a=b"1")
                await asyncio.sleep(0.01)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


@made_of((StoreClauses,))
class StoreContract(Contract):
    """Subclass it with a fixture `store`: a `CasStore`, empty and not open yet."""

    kind = "store"

    @pytest.fixture
    def store(self) -> CasStore:
        """One for each test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store` that returns a CasStore")


def store_below(backend: object) -> CasStore | None:
    """The store that a `CasBackend` is built on; None for other backends."""
    store = getattr(backend, "store", None)
    return store if isinstance(store, CasStore) else None
