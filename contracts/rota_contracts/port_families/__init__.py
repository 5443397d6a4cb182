"""The clauses about the port, one file per subject. A new file needs no registration: all modules are read."""

from __future__ import annotations

from rota_contracts.clause import families_of

PORT_FAMILIES: tuple[type, ...] = families_of(__name__, __path__)
