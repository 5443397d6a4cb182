"""The values everything else speaks of: frozen, checked when made, no I/O."""

from __future__ import annotations
