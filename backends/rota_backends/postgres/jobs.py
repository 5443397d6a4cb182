"""Jobs: registered, removed, paused, listed."""

from __future__ import annotations

from collections.abc import Sequence

from rota.backend import JobKey, JobQuery, JobRecord, PauseChange, Registered, Registration, Removal, StoredJob
from rota.model.definition import OnEvent
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Row
from rota_backends.postgres.definitions import as_json, definition_text
from rota_backends.postgres.store import Store


class Jobs(Store):
    """Guards are compared under the lock of the lane (sql/0003)."""

    async def standing(self, key: JobKey) -> JobRecord:
        (row,) = await self._fetch(self._sql.standing, *key, self._now())
        if row["lane"] is None:
            return JobRecord(row["at"])
        stored = await self._stored([row]) if row["definition"] is not None else []
        return JobRecord(row["at"], row["revision"], row["decided"], stored[0] if stored else None)

    async def _stored(self, found: Sequence[Row]) -> list[StoredJob]:
        """A job that cannot be decoded counts as not there until it is scheduled again (SAFE-1)."""
        definitions = await self._definitions(row["definition"] for row in found)
        readable = [row for row in found if row["definition"] not in definitions.unreadable]
        return [rows.stored_job(row, definitions[row["definition"]]) for row in readable]

    async def register(self, new: Registration) -> Registered:
        definition, key = new.definition, new.idempotency_key
        trigger = definition.trigger
        listens = (
            (trigger.source_module, trigger.event_type, trigger.subject)
            if isinstance(trigger, OnEvent)
            else (None,) * 3
        )
        answer = await self._connections.value(
            self._sql.register, self._now(), self._announcer.tag(), *new.key, new.expected, new.request_id, new.changes,
            definition_text(definition), definition.payload, definition.handler_name, definition.queue,
            definition.priority, *listens, new.next_due, new.decided, as_json(new.decisions),
            None if key is None else key.key, None if key is None else key.ttl, new.owner,
        )  # fmt: skip
        self._wake()
        return Registered(answer)

    async def remove(self, removal: Removal) -> bool:
        is_removed = await self._connections.value(
            self._sql.remove, self._now(), *removal.key, removal.expected, removal.request_id, removal.decided,
            as_json(removal.decisions),
        )  # fmt: skip
        return bool(is_removed)

    async def pause(self, change: PauseChange) -> bool:
        is_changed = await self._connections.value(
            self._sql.pause, self._now(), self._announcer.tag(), *change.key, change.reason, change.expected,
            change.next_due, change.decided, as_json(change.decisions),
        )  # fmt: skip
        self._wake()
        return bool(is_changed)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        jobs: list[StoredJob] = []
        after, is_more = query.after, True
        while is_more and len(jobs) < query.limit:
            wanted = query.limit - len(jobs)
            found = await self._fetch(self._sql.jobs, query.scope_id, after, query.owner, wanted)
            jobs += await self._stored(found)
            is_more = len(found) == wanted
            after = found[-1]["job_id"] if found else after
        return jobs
