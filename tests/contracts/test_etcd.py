"""The etcd backend of the examples keeps the contract: one server for all clauses, a prefix of its own for each.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

import pytest

from examples.custom_backend_contract import harness
from rota_contracts import Harness, PortContract, SchedulerContract
from tests.etcd import etcd_url, skip_without_etcd

skip_without_etcd()


class OnEtcd:
    backend = "etcd"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness(etcd_url())


class TestEtcd(OnEtcd, SchedulerContract): ...


class TestEtcdPort(OnEtcd, PortContract): ...
