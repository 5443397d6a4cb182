"""Jobs inside one process: no server, nothing to install."""

from rota_backends.inprocess.backend import InProcessBackend

__all__ = ["InProcessBackend"]
