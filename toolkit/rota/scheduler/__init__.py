"""The portable scheduler: what an application calls, in terms of the port."""

from __future__ import annotations
