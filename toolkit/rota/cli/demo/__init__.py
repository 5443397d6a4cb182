"""`rota demo`: ordinary jobs on accelerated time, shown in a terminal. Only the clock is virtual."""

from __future__ import annotations

from rota.cli.demo.play import play

__all__ = ["play"]
