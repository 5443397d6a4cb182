"""The pages: those made from the code are current, links lead somewhere, nothing public is missing.

No rule: it is about the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

import rota
import rota.errors
from docs._generate import PAGES as GENERATED
from docs._generate import REFERENCE
from docs._generate.api import SECTIONS, errors
from docs._generate.contract import families
from rota.cli import main
from rota_contracts.contract import all_clauses
from tests.docs.blocks import PAGES, ROOT

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_page_made_from_the_code_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == GENERATED[name](), "run: make docs"


def test_every_rule_has_its_place_on_the_contract_page() -> None:
    rules = [rule for family in families() for rule in family["rules"]]
    assert {clause.rule for clause in all_clauses().values()} <= set(rules)
    assert len(rules) == len(set(rules))
    anchors = anchors_of("docs/reference/contract.md")
    assert {rule.lower() for rule in rules} <= anchors, "clauses point there"


def test_every_public_name_is_on_the_api_page() -> None:
    told = {name for names in SECTIONS.values() for name in names.split()} | {error.__name__ for error in errors()}
    assert told == set(rota.__all__)


@pytest.mark.parametrize("method", ["overview", "nodes", "decisions", "prune"])
def test_the_api_page_has_the_methods_of_the_admin(method: str) -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert f"- `await {method}(" in page.partition("### scheduler.admin\n")[2].partition("\n### ")[0]


def test_every_error_that_a_user_may_meet_is_public() -> None:
    found = vars(rota.errors).values()
    assert {each for each in found if isinstance(each, type) and issubclass(each, rota.RotaError)} == set(errors())


def test_every_command_and_option_is_on_the_page_of_the_command_line() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    for path, command in commands_below(main, "rota"):
        assert f"# {path}\n" in page
        section = page.partition(f"# {path}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        for option in command.params:
            assert option.opts[-1] in section or not isinstance(option, click.Option), f"{path} {option.opts}"


def commands_below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands_below(command, f"{path} {name}")


def anchors_of(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text))
    return {*headings, *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for link in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target.relative_to(ROOT).as_posix()), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/") and page != "docs/index.md"])
def test_every_page_is_reachable_from_the_index(page: str) -> None:
    listed = (ROOT / "docs/index.md").read_text() + (ROOT / "docs/adr/README.md").read_text()
    assert page.removeprefix("docs/").removeprefix("adr/") in listed
