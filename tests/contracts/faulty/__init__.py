"""Faulty schedulers, each breaking one rule in a plausible way: what the pack must catch.

One file per author or family, each with a list `FAULTS`; a new file needs no registration.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.contracts.faulty.base import Fault


def all_faults() -> list[Fault]:
    """The faults of every module here, in order."""
    modules = [import_module(info.name) for info in iter_modules(__path__, f"{__name__}.")]
    return [fault for module in modules for fault in getattr(module, "FAULTS", [])]
