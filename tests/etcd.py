"""An etcd for the tests, started by them. `ROTA_TEST_ETCD` (a URL) uses a given server instead."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.binaries import NotInstallable, etcd


class EtcdServer:
    """A server of our own, on ports of its own. Its data is in memory where there is some: no test cuts the power."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(prefix="rota-etcd-", dir=memory if os.access(memory, os.W_OK) else None)
        client, peer = (f"http://127.0.0.1:{port}" for port in _free_ports())
        self.url = client
        settings = {
            "data-dir": self.folder, "listen-client-urls": client, "advertise-client-urls": client,
            "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}",
        }  # fmt: skip
        command = [str(etcd()), *(f"--{name}={value}" for name, value in settings.items())]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._await_ready()

    def _await_ready(self) -> None:
        end = time.monotonic() + 30
        while not _answers(self.url):
            if time.monotonic() > end or self._process.poll() is not None:
                self.stop()
                raise RuntimeError("etcd did not start")
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def etcd_url() -> str:
    """A server that lives as long as this process."""
    given = os.environ.get("ROTA_TEST_ETCD")
    if given is not None:
        return given
    server = EtcdServer()
    atexit.register(server.stop)
    return server.url


def skip_without_etcd() -> None:
    """At the top of a module: leave its tests out, with the reason, where there is no etcd and none to be had."""
    missing = why_no_etcd()
    if missing is not None:
        pytest.skip(missing, allow_module_level=True)


@cache
def why_no_etcd() -> str | None:
    if "ROTA_TEST_ETCD" in os.environ:
        return None
    try:
        etcd()
    except NotInstallable as error:
        return f"there is no etcd, and none to be had (Debian: apt install etcd-server): {error}"
    return None


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]
