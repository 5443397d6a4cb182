"""What a benchmark hands back, and how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from attrs import asdict, field, frozen


@frozen
class Goal:
    """What was promised (None: nothing, only told), and what this run reached; `at_least=False` means at most."""

    text: str
    goal: float | None
    reached: float
    at_least: bool = True
    unit: str = "x"

    @property
    def holds(self) -> bool:
        if self.goal is None:
            return True
        return self.reached >= self.goal if self.at_least else self.reached <= self.goal

    def line(self) -> str:
        if self.goal is None:
            return f"{self.text}: {self.reached:.2f}{self.unit}"
        bound = "goal" if self.at_least else "goal at most"
        told = f"{self.goal:.1f}{self.unit}, reached {self.reached:.2f}{self.unit}"
        return f"{self.text}: {bound} {told}{'' if self.holds else '   MISSED'}"


@frozen
class Table:
    """Rows of text under a head."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(factory=list)

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [_line(self.head, widths), _line(tuple("-" * width for width in widths), widths)]
        lines += [_line(row, widths) for row in self.rows]
        return "\n".join([self.title, *("  " + line for line in lines)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]).rstrip()


@frozen
class Report:
    """One benchmark: settings, raw numbers, tables, goals, and what each entry promises."""

    name: str
    settings: dict[str, Any]
    raw: Any
    tables: list[Table]
    goals: list[Goal]
    promises: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)

    def text(self) -> str:
        parts = [f"== {self.name} =="]
        parts += [table.text() for table in self.tables]
        for title, lines in (("what each promises", self.promises), ("notes", self.notes)):
            if lines:
                parts.append("\n".join([title, *(f"  {line}" for line in lines)]))
        parts.append("\n".join(["goals and ratios", *(f"  {goal.line()}" for goal in self.goals)]))
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        goals = [asdict(goal) | {"holds": goal.holds} for goal in self.goals]
        return {
            "settings": self.settings,
            "goals": goals,
            "promises": self.promises,
            "notes": self.notes,
            "tables": [asdict(table) for table in self.tables],
            "raw": self.raw,
        }


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 0) -> str:
    """Median and range."""
    scaled = [value * scale for value in values]
    middle, low, high = (f"{value:,.{digits}f}" for value in (median(scaled), min(scaled), max(scaled)))
    return middle if len(scaled) == 1 else f"{middle} ({low}-{high})"
