"""Listings, letters, retention, the outbox, locks and bookmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from rota.backend import (
    FACTS_WANTED,
    RELAY_LEASE,
    Audience,
    Census,
    Fact,
    FactKind,
    FailedDelivery,
    JobKey,
    LockGrant,
    Prune,
    RunQuery,
)
from rota.model.definition import JobDefinition, Manual
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

    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        relay = self._relay if audience is Audience.EVENTS else self._notices
        return await relay(node_id, done, failed, skip, limit, lease)

    async def _relay(
        self,
        node_id: str,
        done: Sequence[int],
        failed: Sequence[FailedDelivery],
        skip: Collection[JobKey],
        limit: int,
        lease: timedelta,
    ) -> list[Fact] | None:
        self._rehearse(_WHO_TELLS)
        await asyncio.sleep(0)  # answers that are here already come first: what they say of rows need not be read
        aside, known = [rows.place_of(each.seq) for each in failed], self._own.rows()
        found = await self._fetch_or_forget(
            self._sql.relay, self._now(), node_id, lease, *rows.told_columns(done),
            [row for row, _ in aside], [place for _, place in aside], [each.error for each in failed],
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

    async def _notices(
        self,
        node_id: str,
        done: Sequence[int],
        failed: Sequence[FailedDelivery],
        skip: Collection[JobKey],
        limit: int,
        lease: timedelta,
    ) -> list[Fact] | None:
        found = await self._fetch(
            self._sql.notices, self._now(), node_id, lease, list(done), [each.seq for each in failed],
            [each.error for each in failed], [key.scope_id for key in skip], [key.job_id for key in skip], limit, True,
        )  # fmt: skip
        if found and found[0]["id"] is None:
            return None
        return [
            Fact(
                row["id"], FactKind.DEAD_LETTERED, row["at"],
                JobDefinition(row["job_id"], "unknown", Manual(), scope_id=row["scope_id"]), row["run_id"],
            )
            for row in found
        ]  # fmt: skip

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

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        stored: int = await self._connections.value(self._sql.setting, name, expected, value)
        if name == FACTS_WANTED and value == stored == 1:
            await self._fetch(self._sql.tell_facts)
        return stored
