"""README's hello.py is run as a program and as a module of `rota run` (LEASE-5)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.patience import PATIENCE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hello, jobs = [block.text for block in blocks_of("README.md") if block.kind == "python"][:2]
    assert jobs.startswith("JOBS = ")
    tmp_path.joinpath("hello.py").write_text(hello + jobs)
    return tmp_path


def test_hello_greets_when_it_is_run(folder: Path) -> None:
    done = subprocess.run([sys.executable, "hello.py"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert "Hello, you!" in done.stdout


def test_rota_run_does_not_run_the_main_of_hello(folder: Path) -> None:
    command = [sys.executable, "-m", "rota.cli", "run", "hello:handlers", "--jobs", "JOBS"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as node:
        assert node.stdout is not None
        said = ""
        while "is at work" not in said:
            line = node.stdout.readline()
            assert line, said
            said += line
        node.send_signal(signal.SIGTERM)
        said += node.communicate(timeout=PATIENCE)[0]
    assert node.returncode == 0, said
    assert "hello: registered" in said
    assert "Hello, you!" not in said
