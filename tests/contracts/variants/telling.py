"""Lifecycle events late or repeated: they come at least once, after the state is stored; no rule says when (HIST-3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rota.backend import Audience, Fact
from rota.clock import Clock
from rota_backends.inprocess import InProcessBackend


class LateEvents(InProcessBackend):
    """Facts are given to the relay a while after they happened."""

    late_by = timedelta(seconds=3)

    async def outbox(self, audience: Audience, node_id: str, **asked: Any) -> list[Fact] | None:
        facts = await super().outbox(audience, node_id, **asked)
        if audience is not Audience.EVENTS:
            return facts
        return facts and [fact for fact in facts if self._is_old_enough(fact)]

    def _is_old_enough(self, fact: Fact) -> bool:
        # A wall clock that was set back must not hold an event up.
        return fact.occurred_at is None or abs(self.clock.now() - fact.occurred_at) >= self.late_by


class RepeatedEvents(InProcessBackend):
    """Every fact is given to the relay twice: it forgets that the first telling is done."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._told_once: set[int] = set()

    async def outbox(
        self, audience: Audience, node_id: str, *, done: Sequence[int] = (), **asked: Any
    ) -> list[Fact] | None:
        again = [seq for seq in done if seq in self._told_once or audience is not Audience.EVENTS]
        self._told_once.update(done)
        return await super().outbox(audience, node_id, done=again, **asked)
