"""CONTRIBUTING.md is a true map: its files and functions exist, and it names every room.

No rule: it is about the documentation.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
FOLDERS = (
    ROOT,
    ROOT / "toolkit/rota",
    ROOT / "backends/rota_backends",
    *sorted((ROOT / "backends/rota_backends").iterdir()),
    ROOT / "contracts/rota_contracts",
    ROOT / "tests",
)
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+(?:/|\.(?:py|sql|toml|md))")
FUNCTION = re.compile(r"([\w.]+)\(\)")
SQL_FUNCTION = re.compile(r"^CREATE FUNCTION (\w+)", re.M)
LINES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "NAME" not in line]


def found(path: str) -> list[Path]:
    return [each for folder in FOLDERS if (each := folder / path).exists()]


def names_in(path: Path) -> Iterator[str]:
    """The functions of a module, and the methods of its classes as `Class.method`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        yield from SQL_FUNCTION.findall(text)
    elif path.suffix == ".py":
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            elif isinstance(node, ast.ClassDef):
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                yield from (f"{node.name}.{each.name}" for each in methods)


PATHS = sorted({each for line in LINES for each in QUOTED.findall(line) if FILE.fullmatch(each)})
CALLS = [
    pytest.param(line, match[1], id=match[1])
    for line in LINES
    for each in QUOTED.findall(line)
    if (match := FUNCTION.fullmatch(each))
]


@pytest.mark.parametrize("path", PATHS)
def test_a_file_of_the_map_exists(path: str) -> None:
    assert found(path)


@pytest.mark.parametrize(("line", "function"), CALLS)
def test_a_function_of_the_map_is_in_a_file_named_beside_it(line: str, function: str) -> None:
    files = [path for each in QUOTED.findall(line) if FILE.fullmatch(each) for path in found(each) if path.is_file()]
    assert function in {name for path in files for name in names_in(path)}


def test_the_map_names_every_room() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (rooms,) = [each for each in settings["tool"]["importlinter"]["contracts"] if each["id"] == "rooms"]
    names = {name for layer in rooms["layers"] for name in re.findall(r"\w+", layer)}
    assert names <= {path.rstrip("/").removesuffix(".py") for path in PATHS}
