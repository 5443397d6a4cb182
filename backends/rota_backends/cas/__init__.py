"""A backend for stores of other people's: write five primitives, get the whole port. Start with `CasStore`."""

from __future__ import annotations

from rota_backends.cas.backend import CasBackend
from rota_backends.cas.store import CasStore, Put, Versioned

__all__ = ["CasBackend", "CasStore", "Put", "Versioned"]
