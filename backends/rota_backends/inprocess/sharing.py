"""Shared by all nodes: relay leases, named locks, settings, and the counts for health."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.backend import FACTS_WANTED, Audience, Census, LockGrant, is_relayed
from rota_backends.inprocess.outbox import Outbox
from rota_backends.inprocess.store import Store


class Sharing(Store):
    """One step each: nodes of one process take turns."""

    def _relays(self, audience: Audience, node_id: str, lease: timedelta, now: datetime) -> bool:
        held = self._locks.held(audience.lock)
        if held is not None and held[0] != node_id and is_relayed(held[1].until, now):
            return False
        self._locks.take(audience.lock, node_id, now + lease)
        return True

    def _census(self, scope_id: str | None, now: datetime) -> Census:
        lanes = [lane for lane in self._lanes.values() if scope_id is None or lane.key.scope_id == scope_id]
        running = sum(lane.leased for lane in lanes)
        handlers = {lane.definition.handler_name for lane in lanes if lane.definition is not None}
        return Census(
            now=now,
            jobs=sum(lane.definition is not None for lane in lanes),
            queued=sum(lane.unfinished() for lane in lanes) - running,
            running=running,
            dead_letters=sum(scope_id in (None, run.lane.key.scope_id) for run in self._letters.values()),
            set_aside=sum(len(outbox.set_aside) for outbox in self._outboxes.values()),
            nodes=self._nodes.alive(now),
            missing_handlers=tuple(sorted(handlers - self._nodes.handlers(now))),
            untold_since=_since(self._facts),
            unnoticed_since=_since(self._outboxes[Audience.ADMINS]),
        )

    def _lock(self, name: str, node_id: str, ttl: timedelta | None, now: datetime) -> LockGrant | None:
        holder, held = self._locks.held(name) or ("", None)
        if held is not None and held.until > now and holder != node_id:
            return None
        grant = self._locks.take(name, node_id, now if ttl is None else now + ttl)
        if ttl is None:
            self._locks.release(name)
        return grant

    def _setting(self, name: str, expected: int | None, value: int | None) -> int:
        if value is not None and self._settings.get(name, 0) == expected:
            self._settings[name] = value
            self._records_facts = self._settings.get(FACTS_WANTED, 0) == 1
        return self._settings.get(name, 0)


def _since(outbox: Outbox) -> datetime | None:
    return None if outbox.first is None else outbox.first.occurred_at
