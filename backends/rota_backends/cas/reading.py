"""Reading and cleaning, and the small services: outbox, locks, settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from rota.backend import liveness
from rota.backend.fact import Fact
from rota.backend.messages import (
    RELAY_LEASE,
    Audience,
    Census,
    FailedDelivery,
    JobKey,
    LockGrant,
    NodeInfo,
    Prune,
    RunQuery,
    is_fresh,
    is_relayed,
)
from rota.model.run import Decision, JobRun
from rota_backends.cas import keys
from rota_backends.cas.jobs import Jobs
from rota_backends.cas.records import Holder, Lane, Run, Taken, Told, dump, load
from rota_backends.cas.step import Step, run_at
from rota_backends.cas.store import Put, Versioned
from rota_backends.cas.work import Work


class Reading(Jobs, Work):
    """Reading and cleaning, and the small services: outbox, locks, settings."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if query.run_id is not None:
            run = await self._find(query.run_id, query.scope_id)
            return [] if run is None else [run.view()]
        if query.dead_letters:
            return await self._letters(query)
        found = await self.store.scan(keys.runs(JobKey(query.scope_id, query.job_id or "")), "", query.limit)
        return [load(each.value, Run).view() for each in found]

    async def _letters(self, query: RunQuery) -> list[JobRun]:
        """Oldest first, by when they died and then by arrival."""
        after = ""
        if query.after is not None:
            last = await self._find(query.after, query.scope_id)
            if last is None or last.ended_at is None:
                return []
            after = keys.letter(last.scope_id, last.ended_at, last.seq, last.run_id)
        found: list[JobRun] = []
        async for each in self._all(keys.letters(query.scope_id), after):
            run = await run_at(self.store, each.value.decode())
            if run is not None and query.job_id in (None, run.job_id):
                found.append(run.view())
                if len(found) == query.limit:
                    break
        return found

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        newest = (await self._read(key)).lane.decisions
        oldest = max(newest - min(limit, keys.DECISIONS_KEPT), 0)
        where = [keys.decision(key, number) for number in range(newest, oldest, -1)]
        found = await self._get(where)
        return [load(found[each].value, Decision) for each in where if each in found]

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        found = await self._find(run_id, scope_id)
        return found is not None and await self._unletter(found, request_id)

    async def _unletter(self, found: Run, request_id: UUID) -> bool:
        async def change(step: Step) -> bool:
            letter = await step.run_by_id(found.run_id)
            if letter is None or not letter.is_letter:
                return letter is not None and letter.ended_by == request_id
            letter.ended_by = request_id
            step.unletter(letter)
            return True

        return await self._change(found.key, change)

    # --- retention ---

    async def prune(self, request: Prune) -> int:
        now = await self.now()
        if request.dead_letters is not None:
            await self._unletter_old(now - request.dead_letters, request.limit)
        forgotten = await self._forget_old(now - request.age, request.limit)
        async for each in self._all("lane/"):
            lane: Lane = load(each.value, Lane)
            if lane.ending:
                await self._sweep(lane.key)
            if lane.kept > request.runs and forgotten < request.limit:
                forgotten += await self._forget_many(lane.key, request.runs, request.limit - forgotten)
        forgotten += await self._forget_keys(now, request.limit - forgotten)
        await self._forget_nodes(now)
        return forgotten

    async def _unletter_old(self, before: datetime, limit: int) -> None:
        async for each in self._all("letter/"):
            is_old = int(each.key.split("/", 3)[2]) < keys.micros(before)
            letter = await run_at(self.store, each.value.decode()) if is_old and limit > 0 else None
            limit -= letter is not None and await self._unletter(letter, uuid4())

    async def _forget_old(self, before: datetime, limit: int) -> int:
        forgotten = 0
        async for each in self._all("done/"):
            if forgotten >= limit or keys.instant_of(each.key) >= before:
                break
            run = await run_at(self.store, each.value.decode())
            forgotten += 0 if run is None else await self._forget(run)
        return forgotten

    async def _forget_many(self, key: JobKey, keep: int, limit: int) -> int:
        kept = forgotten = 0
        async for each in self._all(keys.runs(key)):
            run: Run = load(each.value, Run)
            if run.state.is_final and not run.is_letter:
                kept += 1
                if kept > keep and forgotten < limit:
                    forgotten += await self._forget(run)
        return forgotten

    async def _forget(self, run: Run) -> bool:
        async def change(step: Step) -> bool:
            found = await step.run_by_id(run.run_id)
            if found is None or not found.state.is_final or found.is_letter:
                return False
            step.forget(found)
            return True

        return await self._change(run.key, change)

    async def _forget_keys(self, now: datetime, limit: int) -> int:
        forgotten = 0
        async for each in self._all("expiry/"):
            if forgotten >= limit or keys.instant_of(each.key) > now:
                break
            key = each.key.split("/", 2)[2]
            found = (await self.store.get([key])).get(key)
            puts = [Put(each.key, None, None)]
            if found is not None and load(found.value, Taken).until <= now:
                puts.append(Put(key, found.version, None))
            forgotten += await self.store.commit(puts)
        return forgotten

    async def _forget_nodes(self, now: datetime) -> None:
        rows = [each async for each in self._all("node/")]
        known: dict[NodeInfo, Versioned] = {load(each.value, NodeInfo): each for each in rows}
        for node in liveness.over(known, now):
            await self.store.commit([Put(known[node].key, known[node].version, None)])

    # --- the outbox ---

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
        if audience is Audience.ADMINS and not await self.store.scan(keys.outbox(audience), "", 1):
            return []
        if not await self._relays(audience, node_id, lease):
            return None
        await self._forget_told(audience, done, failed)
        return await self._untold(audience, skip, limit)

    async def _untold(self, audience: Audience, skip: Collection[JobKey], limit: int) -> list[Fact]:
        """The next ones in order, read no further than the page."""
        page: list[Fact] = []
        async for found in self._all(keys.outbox(audience)):
            fact = load(found.value, Told).fact()
            if fact.key not in skip:
                page.append(fact)
            if len(page) >= limit:
                break
        return page

    async def _forget_told(self, audience: Audience, done: Sequence[int], failed: Sequence[FailedDelivery]) -> None:
        for start in range(0, len(done), 50):
            await self.store.commit([Put(keys.fact(audience, seq), None, None) for seq in done[start : start + 50]])
        for each in failed:
            aside = Put(keys.aside(audience, each.seq), None, each.error.encode())
            await self.store.commit([Put(keys.fact(audience, each.seq), None, None), aside])

    async def _relays(self, audience: Audience, node_id: str, lease: timedelta) -> bool:
        where = keys.lock(audience.lock)

        async def attempt() -> tuple[bool, list[Put]]:
            found = (await self.store.get([where])).get(where)
            now = await self.now()  # after it was read: a lease taken meanwhile must not look too far ahead
            held = None if found is None else load(found.value, Holder)
            answer, taken = _relayed_by(held, node_id, now, lease)
            version = 0 if found is None else found.version
            return answer, [] if taken is None else [Put(where, version, dump(taken, Holder))]

        return await self._until_written(attempt, where)

    # --- the small services ---

    async def census(self, scope_id: str | None = None) -> Census:
        now = await self.now()
        prefix = "lane/" if scope_id is None else keys.lanes(scope_id)
        lanes: list[Lane] = [load(each.value, Lane) async for each in self._all(prefix)]
        running = sum(lane.is_leased for lane in lanes)
        nodes = liveness.alive(await self._nodes(), now)
        served = {handler for node in nodes for handler in node.handlers}
        letters = "letter/" if scope_id is None else keys.letters(scope_id)
        return Census(
            now=now,
            jobs=sum(lane.definition is not None for lane in lanes),
            queued=sum(lane.unfinished() for lane in lanes) - running,
            running=running,
            dead_letters=await self._count(letters),
            set_aside=await self._count("aside/"),
            nodes=nodes,
            missing_handlers=tuple(sorted({lane.job.handler_name for lane in lanes if lane.job is not None} - served)),
            untold_since=await self._since(Audience.EVENTS),
            unnoticed_since=await self._since(Audience.ADMINS),
        )

    async def _since(self, audience: Audience) -> datetime | None:
        for found in await self.store.scan(keys.outbox(audience), "", 1):
            told: Told = load(found.value, Told)
            return told.at
        return None

    async def _count(self, prefix: str) -> int:
        return sum([1 async for _ in self._all(prefix)])

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        now = await self.now()

        def change(held: Holder | None) -> tuple[LockGrant | None, Holder | None]:
            is_mine = held is not None and held.holder == node_id
            is_released = held is None or not held.holder
            if held is not None and held.until > now and not (is_mine or is_released):
                return None, None
            token = 1 if held is None else held.token + (not is_mine)
            until = now if ttl is None else now + ttl
            return LockGrant(name, token, until), Holder("" if ttl is None else node_id, until, token)

        return await self._swap(keys.lock(name), Holder, change)

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        def change(stored: int | None) -> tuple[int, int | None]:
            if value is not None and (stored or 0) == expected:
                return value, value
            return stored or 0, None

        return await self._swap(keys.setting(name), int, change)


def _relayed_by(held: Holder | None, node_id: str, now: datetime, lease: timedelta) -> tuple[bool, Holder | None]:
    """One node at a time; its lease is written again only when half of it has gone, for it asks often."""
    if held is not None and held.holder != node_id and is_relayed(held.until, now):
        return False, None
    if held is not None and held.holder == node_id and is_fresh(held.until, now, lease):
        return True, None
    return True, Holder(node_id, now + lease)
