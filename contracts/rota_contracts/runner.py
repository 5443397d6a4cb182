"""`rota contract mypkg.testing:harness`: the pack without writing a test file."""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.errors import MissingExtra

if TYPE_CHECKING:
    import pytest

_PLUGIN = "rota_contracts.plugin"
CONTRACTS = Path(__file__).with_name("command_line.py")


def main(spec: str, args: list[str]) -> int:
    """Run the whole contract against the harness that `spec` (`module:callable`) makes; `args` go to pytest.

    0 when conformant (with or without deviations), else what pytest says, or 1 when the verdict is INCOMPLETE. A
    partial run (`-k`) has no verdict: 0 when nothing failed.
    """
    need_pytest()
    import pytest

    resolve(spec)  # a mistake in its module shows before clauses are collected
    observer = _Observer()
    code = int(pytest.main([*_arguments(spec), *args], plugins=[observer]))
    return code or (0 if observer.is_fine else 1)


def need_pytest() -> None:
    """Say what to install where it is missing."""
    if find_spec("pytest") is None:
        raise MissingExtra("contracts", "the contract pack runs on pytest")


def resolve(spec: str) -> Any:
    """What `package.module:name` stands for; `rota contract` has looked whether it is there."""
    module, _, name = spec.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def let_go(harness: Any) -> None:
    """Close a harness that no clause was run with."""
    if close := getattr(harness, "close", None):
        asyncio.run(close())


def _arguments(spec: str) -> list[str]:
    return [
        str(CONTRACTS), "-p", _PLUGIN, f"--rota-harness={spec}",
        # The project's own pytest settings are for its own tests.
        "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", "-p", "no:asyncio",
        # Names are shown relative to the current folder, not to where the pack is installed.
        f"--rootdir={Path.cwd()}", "--no-header", "-o", "python_classes=Contract Port Store",
        # The harness is imported by then, and pytest would warn that assertions of its packages are not rewritten.
        "-W", "ignore::pytest.PytestAssertRewriteWarning",
    ]  # fmt: skip


class _Observer:
    """Looks at the verdict when pytest has ended."""

    is_fine = True

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        from rota_contracts.plugin import Recorder

        recorder = config.pluginmanager.get_plugin(Recorder.name)
        full = recorder.full_subjects() if recorder is not None else []
        self.is_fine = all(subject.verdict().startswith("CONFORMANT") for subject in full)
