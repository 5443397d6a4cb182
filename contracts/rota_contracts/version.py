"""The version of the contract itself, apart from the toolkit's: it moves when the meaning of a rule changes."""

from __future__ import annotations

CONTRACT_VERSION = "2"
