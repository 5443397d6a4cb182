"""Listings, letters, retention, the outbox, locks and bookmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from rota.backend import Census, Fact, FailedDelivery, JobKey, LockGrant, Notice, Prune, RunQuery
from rota.model.run import Decision, JobRun
from rota_backends.postgres import rows
from rota_backends.postgres.store import Store

_WHO_TELLS = 2  # connections: one for a trigger while the other asks what to tell


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
        return [rows.decision(row) for row in await self._fetch(self._sql.decisions, *key, limit)]

    async def prune(self, request: Prune) -> int:
        gone: int = await self._connections.value(
            self._sql.prune, self._now(), request.runs, request.age, request.dead_letters, request.limit
        )
        return gone

    async def relay(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        self._rehearse(_WHO_TELLS)
        await asyncio.sleep(0)  # answers that are here already come first: what they say of rows need not be read
        aside, known = [rows.place_of(each.seq) for each in set_aside], self._own.rows()
        found = await self._fetch_or_forget(
            self._sql.relay, self._now(), node_id, lease, *rows.told_columns(done),
            [row for row, _ in aside], [place for _, place in aside], [each.error for each in set_aside],
            [key.scope_id for key in skip], [key.job_id for key in skip], list(known),
            [own[0].occurred_at for own in known.values()], limit,
        )  # fmt: skip
        if found and found[0]["id"] is None:
            self._own.forget()
            return None
        self._own.relayed(known, found[0]["id"] if found else None)
        definitions = await self._definitions(number for row in found for number in row["definition"] or ())
        facts: list[Fact] = []
        for row in found:
            if row["definition"] is not None:
                facts += rows.facts(row, definitions)
            else:
                facts += (fact for place, fact in enumerate(known[row["id"]], 1) if place not in row["told"])
        if skip:
            facts = [fact for fact in facts if JobKey(fact.scope_id, fact.subject) not in skip]
        return facts[:limit]  # of one row there may be more

    async def notices(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 100,
        lease: timedelta = timedelta(seconds=10),
        has_notifier: bool = True,
    ) -> list[Notice] | None:
        found = await self._fetch(
            self._sql.notices, self._now(), node_id, lease, list(done), [each.seq for each in set_aside],
            [each.error for each in set_aside], [key.scope_id for key in skip], [key.job_id for key in skip], limit,
            has_notifier,
        )  # fmt: skip
        if found and found[0]["id"] is None:
            return None
        return [Notice(row["id"], JobKey(row["scope_id"], row["job_id"]), row["run_id"], row["at"]) for row in found]

    async def census(self, scope_id: str | None = None) -> Census:
        now = self._now()
        (row,) = await self._fetch(self._sql.census, now, scope_id)
        nodes = await self._fetch(self._sql.nodes, now)
        return Census(
            row["at"], row["jobs"], row["queued"], row["running"], row["letters"], row["aside"],
            tuple(rows.node(each) for each in nodes), tuple(row["missing"]), untold_since=row["untold"],
            unnoticed_since=row["unnoticed"],
        )  # fmt: skip

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        found = await self._fetch(self._sql.lock, self._now(), name, node_id, ttl)
        return LockGrant(name, found[0]["token"], found[0]["until"]) if found else None

    async def bookmark(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        stored: int = await self._connections.value(self._sql.bookmark, name, expected, value)
        return stored
