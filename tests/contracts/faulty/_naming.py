"""Clause ids without repeating the rule."""

from __future__ import annotations


def of(rule: str, *tests: str) -> tuple[str, ...]:
    """`of("RUN-1", "a", "b")` is `("RUN-1/test_a", "RUN-1/test_b")`."""
    return tuple(f"{rule}/test_{test}" for test in tests)
