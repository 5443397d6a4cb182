"""The contract run of the custom backend: about twenty lines, and every clause of the pack.

    pytest examples/custom_backend_contract.py                      # as your own test file
    rota contract examples.custom_backend_contract:harness          # or without one

The etcd is at ROTA_ETCD, or where etcd always is. Alone, `python examples/custom_backend_contract.py`, it runs the
clauses of the rules on keys, as a taste.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from uuid import uuid4

from rota import StoreUnavailable

try:
    import pytest

    from rota_backends.cas import CasStore
    from rota_contracts import BackendHarness, Harness, PortContract, SchedulerContract, StoreContract
except ImportError as error:
    raise SystemExit(f'{error}; it comes with: pip install "rota[contracts]"') from None

sys.path.insert(0, str(Path(__file__).parent.parent))

from examples.custom_backend import URL, EtcdBackend, EtcdStore


def where() -> str:
    return os.environ.get("ROTA_ETCD", URL)


def harness(url: str | None = None) -> BackendHarness:
    """A new store for each clause; `reopen` and other processes use the same prefix, and so the same store."""
    make = partial(EtcdBackend, url or where(), prefix=f"contract-{uuid4()}/")

    async def cleanup() -> None:
        store = EtcdStore(*make.args, **make.keywords)
        await store.clear()
        await store.close()

    return BackendHarness(lambda clock: make(clock=clock), elsewhere=make, cleanup=cleanup)


class OnEtcd:
    backend = "etcd"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness()


class TestStore(StoreContract):
    backend = "etcd, its store"

    @pytest.fixture
    def store(self) -> CasStore:
        return EtcdStore(where(), prefix=f"contract-{uuid4()}/")


class TestPort(OnEtcd, PortContract): ...


class TestEtcd(OnEtcd, SchedulerContract): ...


async def reach(url: str) -> None:
    store = EtcdStore(url)
    await store.get(["anything"])
    await store.close()


if __name__ == "__main__":
    try:
        asyncio.run(reach(where()))
    except StoreUnavailable as error:
        sys.exit(f"{error}. Start one (Debian: apt install etcd-server) or name its URL: ROTA_ETCD={URL}")
    taste = [
        sys.executable,
        "-m",
        "rota.cli",
        "contract",
        "examples.custom_backend_contract:harness",
        "-q",
        "-k",
        "key",
    ]
    sys.exit(subprocess.call(taste, cwd=Path(__file__).parent.parent))
