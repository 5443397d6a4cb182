"""Every Python block of every page runs, in the page's order and in one namespace; so does every `rota` command.

No rule: it is about the documentation.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota_backends.sqlite import SqliteBackend
from tests.docs.blocks import PAGES, Block, blocks_of, pages_with

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | annotations.compiler_flag
_ROTA = Path(sys.executable).with_name("rota")
# What the pages call the reader's own package.
_MYPKG = """
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness


def harness():
    return BackendHarness(lambda clock: InProcessBackend(clock=clock))
"""


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}  # so that a guarded main runs
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.kind == "python":
                perform(page, block, names, runner)


def perform(page: str, block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """A block that is not shown may await, as if it stood in an async function; its loop is the page's."""
    lines = "\n" * block.line + block.text  # a failure names the line of the page
    code = compile(lines, page, "exec", flags=_FLAGS, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)


@pytest.mark.parametrize("page", pages_with("python"))
def test_what_a_page_shows_can_be_pasted_into_a_file(page: str) -> None:
    """An `await` outside of a function would be an error there."""
    for block in blocks_of(page):
        if block.kind == "python" and block.is_shown:
            compile("\n" * block.line + block.text, page, "exec", dont_inherit=True)


@pytest.mark.parametrize("page", pages_with("pycon"))
def test_the_sessions_of_a_page_give_the_shown_answers(page: str) -> None:
    text = "\n".join(block.text for block in blocks_of(page) if block.kind == "pycon")
    session = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    assert session.examples
    assert doctest.DocTestRunner().run(session).failed == 0


def commands() -> list[str]:
    found: dict[str, None] = {}
    for page in PAGES:
        for block in blocks_of(page):
            lines = block.text.splitlines() if block.kind in ("", "sh") else []
            found |= dict.fromkeys(line.split("  #")[0].strip() for line in lines if line.startswith("rota "))
    return list(found)


# The whole pack, the whole demo, nodes and migrations have tests of their own: here it is enough that the words are
# right.
_SHORTER = {"contract": ["--collect-only", "-q"], "demo": ["--seconds", "0"], "run": ["--help"], "db": ["--help"]}


async def _make_store(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.open()
    await backend.close()


@pytest.mark.parametrize("command", commands())
def test_a_rota_command_of_a_page_works(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    if words[0] == "contract":
        module = tmp_path.joinpath(*words[1].split(":")[0].split(".")).with_suffix(".py")
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(_MYPKG)
    if words[0] == "doctor":  # which finds fault with a store that is not there
        asyncio.run(_make_store(tmp_path / "jobs.db"))
    done = subprocess.run([_ROTA, *words, *_SHORTER.get(words[0], [])], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_a_wrong_block_would_be_seen() -> None:
    with asyncio.Runner() as runner, pytest.raises(NameError):
        perform("a page", Block("python", "await_me = missing\n", 3), {}, runner)
