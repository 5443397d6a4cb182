"""The contract run of the custom backend: about ten lines, and every clause of the pack.

    pytest examples/custom_backend_contract.py                      # as a test file of one's own
    rota contract examples.custom_backend_contract:harness          # or without one

Alone, `python examples/custom_backend_contract.py`, it runs the clauses of the rules on keys, as a taste.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rota_contracts import BackendHarness, Harness, SchedulerContract

sys.path.insert(0, str(Path(__file__).parent.parent))

from examples.custom_backend import JournalBackend


def harness() -> BackendHarness:
    """A fresh store for each clause; `reopen` finds it again, because the file is still there."""
    folder = tempfile.mkdtemp()

    async def cleanup() -> None:
        shutil.rmtree(folder)

    path = Path(folder, "jobs.journal")
    return BackendHarness(lambda clock: JournalBackend(path, clock=clock, sync=False), cleanup=cleanup)


class TestJournalBackend(SchedulerContract):
    backend = "journal"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness()


if __name__ == "__main__":
    taste = [sys.executable, "-m", "pytest", __file__, "-q", "-k", "key"]
    sys.exit(subprocess.call(taste))
