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

Rota's promises, rule by rule. The clauses of the [contract pack](contract-pack.md) test every backend; each rule lists
its clauses. Errors, docstrings and failing clauses use the same ids. Version {version} of the contract has {clauses}
clauses.

Marks after a clause: *nodes* means that it uses several nodes on one store, *durable* that the store is closed and
opened again, *distributed* that each node is in its own process, *port* that it calls the backend without a node;
*with* and *without* name capabilities. Clauses without a level are core: they cannot be known deviations.
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
