"""What every test module has in common: its docstring names the rules it proves, and no test sleeps to wait.

No rule: this is about the tests, not about Rota.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
RULES = {
    rule
    for family in tomllib.loads((TESTS.parent / "docs/reference/rules.toml").read_text(encoding="utf-8"))["family"]
    for rule in family["rules"]
}
MODULES = sorted(TESTS.rglob("test_*.py"))
NO_RULE = re.compile(r"\bno rule: \w", re.IGNORECASE)
MARK = re.compile(r"# sleep: \w")  # after it stands the reason
# Servers that tests start, and suites that are run by themselves on real time.
SERVERS = {"etcd.py", "servers.py"}
REAL_TIME = {"benchmarks", "faults"}


def _named(path: Path) -> str:
    return str(path.relative_to(TESTS))


@pytest.mark.parametrize("path", MODULES, ids=_named)
def test_a_module_says_which_rules_it_proves(path: Path) -> None:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    named = set(re.findall(r"\b[A-Z]+-\d+\b|\bAPI\b|\bMODEL\b", told))
    assert named <= RULES, f"there is no rule {sorted(named - RULES)}"
    assert named or NO_RULE.search(told), "name the rules in the docstring, or say: No rule: REASON"


def _sleeps(path: Path) -> Iterator[str]:
    """Lines that sleep for more than a turn of the event loop, without a reason beside it."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep"):
            line = text.splitlines()[node.lineno - 1]
            if ast.unparse(node.args[0]) != "0" and not MARK.search(line):
                yield f"{_named(path)}:{node.lineno}: {line.strip()}"


def test_no_test_sleeps_to_wait() -> None:
    paths = [path for path in TESTS.rglob("*.py") if path.name not in SERVERS and not REAL_TIME & set(path.parts)]
    found = [each for path in sorted(paths) for each in _sleeps(path)]
    assert not found, "wait for a condition (tests/patience.py), or write the reason behind it, `# sleep: …`"
