"""The project's metadata: dependencies and entry points. No rule: it is about the package."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    listed = [*PROJECT["dependencies"], *(item for extra in extras for item in extra)]
    return sorted({re.split(r"[\[<>=~! ]", item)[0] for item in listed} - {PROJECT["name"]})


@pytest.mark.parametrize("package", requirements())
def test_every_dependency_has_its_reason(package: str) -> None:
    rows = [line for line in (ROOT / "docs" / "dependencies.md").read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if re.search(rf"\b{re.escape(package)}\b", row)]


@pytest.mark.parametrize("group", sorted({"console_scripts", *PROJECT["entry-points"]}))
def test_every_entry_point_leads_somewhere(group: str) -> None:
    ours = [point for point in entry_points(group=group) if point.dist and point.dist.name == PROJECT["name"]]
    declared = PROJECT["scripts"] if group == "console_scripts" else PROJECT["entry-points"][group]
    assert {point.name for point in ours} == set(declared)
    for point in ours:
        found = point.load()
        assert callable(found) or isinstance(found, ModuleType)  # a pytest plugin is a module
