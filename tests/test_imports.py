"""Importing Rota imports nothing that only some users need. No rule: it is about the package."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = [
    "asyncpg",
    "click",
    "dependency_injector",
    "hypothesis",
    "nats",
    "psycopg",
    "pytest",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
]


def loaded_after(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import rota", "from rota import *"])
def test_importing_rota_does_not_import_what_only_some_users_need(statement: str) -> None:
    assert loaded_after(statement).isdisjoint(HEAVY)


def test_a_heavy_import_would_be_seen() -> None:
    assert "sqlite3" in loaded_after("import sqlite3")
