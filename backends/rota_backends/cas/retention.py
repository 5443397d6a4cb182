"""Forgetting: finished runs, old letters, keys whose window is over, dead nodes (HIST-2)."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

from rota.backend import liveness
from rota.backend.messages import JobKey, NodeInfo, Prune
from rota_backends.cas import keys
from rota_backends.cas.history import readable, readable_at, unletter
from rota_backends.cas.jobs import cancel_ending
from rota_backends.cas.records import Lane, Run, Taken, load_or_none
from rota_backends.cas.session import Session
from rota_backends.cas.step import Step
from rota_backends.cas.store import Put, Versioned


async def prune(session: Session, request: Prune) -> int:
    """At most `limit` entries; how many it was."""
    now = await session.now()
    if request.dead_letters is not None:
        await _unletter_old(session, now - request.dead_letters, request.limit)
    forgotten = await _forget_old(session, now - request.age, request.limit)
    async for each in session.all("lane/"):
        lane: Lane | None = load_or_none(each.value, Lane)
        if lane is None:
            continue
        if lane.ending:
            await cancel_ending(session, lane.key)
        if lane.kept > request.runs and forgotten < request.limit:
            forgotten += await _forget_many(session, lane.key, request.runs, request.limit - forgotten)
    forgotten += await _forget_keys(session, now, request.limit - forgotten)
    await _forget_nodes(session, now)
    return forgotten


async def _unletter_old(session: Session, before: datetime, limit: int) -> None:
    async for each in session.all("letter/"):
        is_old = int(each.key.split("/", 3)[2]) < keys.micros(before)
        letter = await readable_at(session, each.value.decode()) if is_old and limit > 0 else None
        limit -= letter is not None and await unletter(session, letter, uuid4())


async def _forget_old(session: Session, before: datetime, limit: int) -> int:
    forgotten = 0
    async for each in session.all("done/"):
        if forgotten >= limit or keys.instant_of(each.key) >= before:
            break
        run = await readable_at(session, each.value.decode())
        forgotten += 0 if run is None else await _forget(session, run)
    return forgotten


async def _forget_many(session: Session, key: JobKey, keep: int, limit: int) -> int:
    kept = forgotten = 0
    async for each in session.all(keys.runs(key)):
        run = readable(each)
        if run is not None and run.state.is_final and not run.is_letter:
            kept += 1
            if kept > keep and forgotten < limit:
                forgotten += await _forget(session, run)
    return forgotten


async def _forget(session: Session, run: Run) -> bool:
    async def change(step: Step) -> bool:
        found = await step.run_by_id(run.run_id)
        if found is None or not found.state.is_final or found.is_letter:
            return False
        step.forget(found)
        return True

    return await session.change(run.key, change)


async def _forget_keys(session: Session, now: datetime, limit: int) -> int:
    forgotten = 0
    async for each in session.all("expiry/"):
        if forgotten >= limit or keys.instant_of(each.key) > now:
            break
        key = each.key.split("/", 2)[2]
        found = (await session.store.get([key])).get(key)
        puts = [Put(each.key, None, None)]
        taken: Taken | None = None if found is None else load_or_none(found.value, Taken)
        if found is not None and (taken is None or taken.until <= now):
            puts.append(Put(key, found.version, None))
        forgotten += await session.store.commit(puts)
    return forgotten


async def _forget_nodes(session: Session, now: datetime) -> None:
    rows = [each async for each in session.all("node/")]
    known: dict[NodeInfo, Versioned] = {
        node: each for each in rows if (node := load_or_none(each.value, NodeInfo)) is not None
    }
    for node in liveness.over(known, now):
        await session.store.commit([Put(known[node].key, known[node].version, None)])
