"""Makes the reference pages that must not disagree with the code: `make docs`. A test says whether they are current."""

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
