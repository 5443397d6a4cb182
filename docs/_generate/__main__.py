"""`python -m docs._generate` writes the pages."""

from __future__ import annotations

from docs._generate import PAGES, REFERENCE

for name, page in PAGES.items():
    (REFERENCE / name).write_text(page(), encoding="utf-8")
