"""Calls of several steps: if a later step fails, a part of the call may be stored (OPS-2)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from rota.errors import OutcomeUnknown, StoreUnavailable


@contextmanager
def partly(stored: Iterable[object]) -> Generator[None]:
    """Once any of `stored` is true, raise `OutcomeUnknown` in place of `StoreUnavailable`, which means that nothing is
    stored."""
    try:
        yield
    except StoreUnavailable as error:
        if not any(stored):
            raise
        raise OutcomeUnknown(f"a part may be stored: {error}") from error
