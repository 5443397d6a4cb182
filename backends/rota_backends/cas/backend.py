"""The port over five primitives."""

from __future__ import annotations

from rota_backends.cas.occurrences import Occurrences
from rota_backends.cas.reading import Reading


class CasBackend(Occurrences, Reading):
    """A backend on a store of your own: `CasBackend(MyStore(…))`. Capabilities are the store's.

    Every call reads what it needs, computes, and commits at the versions it has read; whoever comes second computes
    again. `clock` is for tests: without it the store's own is used (TIME-1).
    """
