"""The reference page does what it shows. Rules: CRON-1, CRON-2, CRON-3."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/cron.md"


def test_the_examples_of_the_reference_page_run() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried >= 8
    assert failed == 0
