"""Pure decisions: no store, no clock, no randomness of their own."""

from __future__ import annotations
