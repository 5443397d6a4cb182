"""The clauses about schedulers, one file per rule family. A new file needs no registration: all modules are read.

A family is a class defined in such a module that holds clauses; see `rota_contracts.clause`.
"""

from __future__ import annotations

from rota_contracts.clause import families_of

FAMILIES: tuple[type, ...] = families_of(__name__, __path__)
