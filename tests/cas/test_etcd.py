"""The etcd store of the examples keeps the contract of the primitives, and says what it knows when etcd is gone.

Rules: STORE-1 to STORE-6, OPS-2.
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from examples.custom_backend import EtcdStore
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.cas import CasStore, Put
from rota_contracts import StoreContract
from tests.etcd import EtcdServer, etcd_url, skip_without_etcd

skip_without_etcd()


class TestEtcdStore(StoreContract):
    @pytest.fixture
    def store(self) -> CasStore:
        return EtcdStore(etcd_url(), prefix=f"{uuid4()}/")


async def test_an_etcd_that_is_gone_is_unavailable_and_a_lost_answer_unknown() -> None:
    server = EtcdServer()
    store = EtcdStore(server.url)
    try:
        assert await store.commit([Put("a", 0, b"1")])
        server.stop()
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):  # the connection that was open: it may have been sent
            await store.commit([Put("a", None, b"2")])
        with pytest.raises(StoreUnavailable):
            await store.commit([Put("a", None, b"3")])
        with pytest.raises(StoreUnavailable):
            await store.get(["a"])
    finally:
        server.stop()
        await store.close()


async def test_stores_under_different_prefixes_know_nothing_of_each_other() -> None:
    one, other = (EtcdStore(etcd_url(), prefix=f"{uuid4()}/") for _ in range(2))
    try:
        assert await one.commit([Put("a", 0, b"1")])
        assert await other.get(["a"]) == {}
        await other.clear()
        assert await one.get(["a"])
    finally:
        await one.clear()
        await one.close()
        await other.close()
