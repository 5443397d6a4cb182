"""`rota contract mypkg.testing:harness`: the pack without writing a test file."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.errors import MissingExtra

if TYPE_CHECKING:
    import pytest

_PLUGIN = "rota_contracts.plugin"


def main(spec: str, args: list[str]) -> int:
    """Run the whole contract against the harness that `spec` (`module:callable`) makes; `args` go to pytest.

    0 when conformant (with or without deviations), else what pytest says, or 1 when the verdict is INCOMPLETE. A
    partial run (`-k`) has no verdict: 0 when nothing failed.
    """
    try:
        import pytest
    except ImportError:
        raise MissingExtra("contracts", "the contract pack runs on pytest") from None
    _check(spec)
    observer = _Observer()
    code = int(pytest.main([*_arguments(spec), *args], plugins=[observer]))
    return code or (0 if observer.is_fine else 1)


def resolve(spec: str) -> Any:
    """What `package.module:name` stands for."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ValueError(f"{spec!r} is not of the form package.module:name")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _check(spec: str) -> None:
    # The harness is named as seen from here, which is not on the path of an installed command.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if not callable(resolve(spec)):
        raise TypeError(f"{spec} is not callable: name a class or function that makes a Harness")


def _arguments(spec: str) -> list[str]:
    # The project's own pytest settings are for its own tests.
    subject = Path(__file__).with_name("subject.py")
    return [
        str(subject), "-p", _PLUGIN, "-p", "no:cacheprovider", "-p", "no:asyncio",
        "-c", os.devnull, f"--rootdir={subject.parent}", f"--rota-harness={spec}",
    ]  # fmt: skip


class _Observer:
    """Looks at the verdict when pytest has ended."""

    is_fine = True

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        from rota_contracts.plugin import Recorder

        recorder = config.pluginmanager.get_plugin(Recorder.name)
        full = recorder.full_subjects() if recorder is not None else []
        self.is_fine = all(subject.verdict().startswith("CONFORMANT") for subject in full)
