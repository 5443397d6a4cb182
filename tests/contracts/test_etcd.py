"""The etcd backend of the examples keeps the contract: one server for all clauses, a prefix of its own for each.

Under the virtual clock of the pack; the durable clauses open the same prefix again with a new client. Only on request:
it takes minutes, and the clause on the model comes close to the pack's limit of 60 s for a clause. The store itself is
tested in tests/cas/test_etcd.py wherever etcd is installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from examples.etcd_backend import EtcdBackend, etcd_server
from rota.clock import Clock
from rota_contracts import BackendHarness, Harness, SchedulerContract

if "ROTA_TEST_ETCD" not in os.environ:
    pytest.skip("the whole pack on etcd takes minutes: set ROTA_TEST_ETCD=1 to run it", allow_module_level=True)
if shutil.which("etcd") is None:
    pytest.skip("etcd is not installed (Debian: apt install etcd-server)", allow_module_level=True)


@pytest.fixture(scope="module")
def etcd_url() -> Iterator[str]:
    with etcd_server() as url:
        yield url


class TestEtcd(SchedulerContract):
    backend = "etcd"

    @pytest.fixture
    def harness(self, etcd_url: str) -> Harness:
        prefix = f"{uuid4()}/"

        def make(clock: Clock | None) -> EtcdBackend:
            backend = EtcdBackend(etcd_url, prefix=prefix, clock=clock)
            backend.patience = timedelta(seconds=0.2)  # real time, which the outages of the clauses are not
            return backend

        return BackendHarness(make)
