"""The version of the contract itself, apart from the toolkit's: it moves when a clause is added or changed."""

from __future__ import annotations

CONTRACT_VERSION = "1"
