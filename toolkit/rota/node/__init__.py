"""One running node: its loops, its slots, and the path of a run through them."""

from __future__ import annotations
