"""Jobs inside one process: no server, nothing to install."""

from __future__ import annotations

from rota_backends.inprocess.backend import InProcessBackend

__all__ = ["InProcessBackend"]
