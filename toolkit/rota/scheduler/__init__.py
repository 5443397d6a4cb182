"""The portable scheduler: the application's calls, translated into calls of the port."""

from __future__ import annotations
