"""The contract page: the rules of rules.toml, each with the clauses of the pack that hold a backend to it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rota.model.capability import Capability
from rota_contracts import CONTRACT_VERSION
from rota_contracts.clause import Clause, names_of
from rota_contracts.contract import all_clauses

RULES = Path(__file__).parent.parent / "reference" / "rules.toml"

_INTRODUCTION = """\
# The contract

What Rota promises, rule by rule. Backends are held to it by the clauses of the [contract pack](contract-pack.md), which
are named under each rule; errors, docstrings and failing clauses use the same ids. The contract's version {version}
has {clauses} clauses.

Marks after a clause: *nodes* means that it needs several nodes on one store, *durable* that the store is closed and
opened again, *distributed* that the nodes are in processes of their own, *port* that it calls the backend without a
node; capabilities are those it applies to. Everything else is core: it cannot be a known deviation.
"""


def families() -> list[dict[str, Any]]:
    """The data file."""
    found: list[dict[str, Any]] = tomllib.loads(RULES.read_text(encoding="utf-8"))["family"]
    return found


def contract_page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION.format(version=CONTRACT_VERSION, clauses=len(all_clauses()))]
    for family in families():
        lines.append(f"- [{family['id']}](#{_anchor(family)}): {_lower(family['title'])}")
    for family in families():
        lines += _family(family)
    return "\n".join(lines) + "\n"


def _anchor(family: dict[str, Any]) -> str:
    return f"family-{family['id'].lower()}"


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _family(family: dict[str, Any]) -> Iterator[str]:
    yield f'\n<a id="{_anchor(family)}"></a>\n\n## {family["title"]}'
    if text := family.get("text"):
        yield f"\n{text}"
    for rule, promise in family["rules"].items():
        yield f"\n### {rule}\n\n{promise.strip()}"
        yield from _clauses(rule)


def _clauses(rule: str) -> Iterator[str]:
    clauses = [clause for clause in all_clauses().values() if clause.rule == rule]
    if clauses:
        yield ""
    for clause in clauses:
        yield f"- `{clause.test}`: {clause.promise}{_marks(clause)}"


def _marks(clause: Clause) -> str:
    marks = [] if clause.level.value == "core" else [clause.level.value]
    if clause.given == "port":
        marks.append("port")
    wanted = clause.needs & ~Capability.DURABLE  # which its level says
    if wanted:
        marks.append(f"with {names_of(wanted)}")
    if clause.lacks:
        marks.append(f"without {names_of(clause.lacks)}")
    return f" *({', '.join(marks)})*" if marks else ""
