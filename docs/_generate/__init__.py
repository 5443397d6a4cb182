"""`make docs`: writes the reference pages that are made from the code. A test fails when they are out of date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs._generate.api import api_page, port_page
from docs._generate.cli import cli_page
from docs._generate.contract import contract_page
from docs._generate.life import life_page
from docs._generate.settings import settings_page

REFERENCE = Path(__file__).parent.parent / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "cli.md": cli_page,
    "contract.md": contract_page,
    "life-of-a-run.md": life_page,
    "port.md": port_page,
    "settings.md": settings_page,
}
