"""The code blocks of a page. A comment `<!-- run … -->` is code that is run but not shown: what a snippet stands on."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)  # fmt: skip

_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<shown>.*?)^```$|^<!-- run\n(?P<hidden>.*?)^-->$", re.M | re.S)


@frozen
class Block:
    """Code on a page; `line` is where it begins."""

    kind: str
    text: str
    line: int
    is_shown: bool = True


def blocks_of(page: str) -> list[Block]:
    """All of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [_block(text, found) for found in _BLOCK.finditer(text)]


def _block(text: str, found: re.Match[str]) -> Block:
    line = text[: found.start()].count("\n") + 1
    if found["hidden"] is not None:
        return Block("python", found["hidden"], line, is_shown=False)
    return Block(found["kind"], found["shown"], line)


def pages_with(*kinds: str) -> list[str]:
    """Pages that have such blocks."""
    return [page for page in PAGES if any(block.kind in kinds for block in blocks_of(page))]
