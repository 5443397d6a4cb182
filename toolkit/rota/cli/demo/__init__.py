"""`rota demo`: ordinary jobs on accelerated time, to be watched in a terminal. Nothing here is faked but the clock."""

from __future__ import annotations

from rota.cli.demo.play import play

__all__ = ["play"]
