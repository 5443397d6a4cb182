"""The clauses, one file per rule family. A new file needs no registration: every module here is looked at.

A family is a class defined in such a module that holds clauses; see `rota_contracts.clause`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from rota_contracts.clause import clauses_of


def _families_in(module_name: str) -> list[type]:
    module = import_module(module_name)
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module_name and clauses_of(value)
    ]


def _found() -> tuple[type, ...]:
    modules = sorted(info.name for info in iter_modules(__path__, f"{__name__}."))
    return tuple(family for module in modules for family in _families_in(module))


FAMILIES: tuple[type, ...] = _found()
