"""Listings, letters, retention, counts, locks and settings."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from rota.backend import Census, JobKey, LockGrant, Prune, RunQuery
from rota.model.run import Decision, JobRun
from rota_backends.postgres import rows
from rota_backends.postgres.store import Store

_PAGE = 500  # jobs whose definitions one census looks at
_MOST_NAMED = 20


class Reading(Store):
    """See sql/0006 and 0007."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        sql = self._sql
        if query.run_id is not None:
            found = await self._fetch(sql.one_run, query.scope_id, query.run_id)
        elif query.dead_letters:
            found = await self._fetch(sql.letter_page, query.scope_id, query.job_id, query.after, query.limit)
        else:
            found = await self._fetch(sql.history_page, query.scope_id, query.job_id, query.limit)
        return [rows.run(row) for row in found]

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        return bool(await self._connections.value(self._sql.discard, run_id, scope_id, request_id))

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        return rows.decisions(await self._fetch(self._sql.decisions, *key, limit))

    async def prune(self, request: Prune) -> int:
        gone: int = await self._connections.value(
            self._sql.prune, self._now(), request.runs, request.age, request.dead_letters, request.limit
        )
        return gone

    async def census(self, scope_id: str | None = None) -> Census:
        now = self._now()
        (row,) = await self._fetch(self._sql.census, now, scope_id)
        nodes = await self._fetch(self._sql.nodes, now)
        return Census(
            row["at"], row["jobs"], row["queued"], row["running"], row["letters"], row["aside"],
            tuple(rows.node(each) for each in nodes), tuple(row["missing"]), untold_since=row["untold"],
            unnoticed_since=row["unnoticed"], unreadable=await self._unreadable_jobs(scope_id),
        )  # fmt: skip

    async def _unreadable_jobs(self, scope_id: str | None) -> tuple[str, ...]:
        """Jobs that cannot be decoded, with the reasons. A store may hold a million jobs: each call looks at the next
        page, and names all that were found so far (SAFE-1)."""
        after, named = self._looked_at, self._unreadable
        page = await self._fetch(self._sql.some_jobs, after, _PAGE)
        self._looked_at = last = page[-1]["lane"] if len(page) == _PAGE else 0
        for lane in [lane for lane in named if after < lane and (lane <= last or not last)]:
            del named[lane]
        for row in page:
            if (why := rows.why_unreadable_job(row)) is not None:
                named[row["lane"]] = (row["scope_id"], why)
        return tuple(why for scope, why in named.values() if scope_id in (None, scope))[:_MOST_NAMED]

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        found = await self._fetch(self._sql.lock, self._now(), name, node_id, ttl)
        return LockGrant(name, found[0]["token"], found[0]["until"]) if found else None

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        stored: int = await self._connections.value(self._sql.setting, name, expected, value)
        return stored
