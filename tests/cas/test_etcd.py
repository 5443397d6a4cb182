"""The etcd store of the examples keeps the contract of the primitives, and says what it knows when etcd is gone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Iterator
from uuid import uuid4

import pytest

from examples.etcd_backend import EtcdStore, etcd_server
from rota.backend.cas import CasStore
from rota.errors import OutcomeUnknown, StoreUnavailable
from tests.cas.primitives import Primitives, put

if shutil.which("etcd") is None:
    pytest.skip("etcd is not installed (Debian: apt install etcd-server)", allow_module_level=True)


@pytest.fixture(scope="module")
def etcd_url() -> Iterator[str]:
    with etcd_server() as url:
        yield url


class TestEtcdStore(Primitives):
    @pytest.fixture
    async def store(self, etcd_url: str) -> AsyncGenerator[CasStore]:
        store = EtcdStore(etcd_url, prefix=f"{uuid4()}/")
        await store.open()
        yield store
        await store.close()


async def test_an_etcd_that_is_gone_is_unavailable_and_a_lost_answer_unknown() -> None:
    with etcd_server() as url:
        store = EtcdStore(url)
        await store.open()
        await put(store, a=b"1")
    try:
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):  # the connection that was open: it may have been sent
            await put(store, a=b"2")
        with pytest.raises(StoreUnavailable):
            await put(store, a=b"3")
        with pytest.raises(StoreUnavailable):
            await store.get(["k/a"])
    finally:
        await store.close()
