"""Calls of several steps: what befalls a later one is told of the whole (OPS-2)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from rota.errors import OutcomeUnknown, StoreUnavailable


@contextmanager
def partly(stored: Iterable[object]) -> Generator[None]:
    """`StoreUnavailable` says that nothing is stored. When any of `stored` is true that is not so, and the outcome is
    unknown."""
    try:
        yield
    except StoreUnavailable as error:
        if not any(stored):
            raise
        raise OutcomeUnknown(f"a part may be stored: {error}") from error
