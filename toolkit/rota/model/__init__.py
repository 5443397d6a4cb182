"""The values of the domain: frozen, checked when made, without I/O."""

from __future__ import annotations
