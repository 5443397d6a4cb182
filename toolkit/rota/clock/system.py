"""The host's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from rota.model.validation import check_kind


class SystemClock:
    """The host's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, delta: timedelta) -> None:
        await asyncio.sleep(check_kind("delta", delta, timedelta).total_seconds())
