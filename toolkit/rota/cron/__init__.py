"""Cron schedules: the `Cron` value and its two policies (CRON-1 to CRON-3, CRON-10)."""

from __future__ import annotations

from rota.cron.value import Cron, Misfire, Overlap

__all__ = ["Cron", "Misfire", "Overlap"]
