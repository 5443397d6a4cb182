"""Reading runs: history, dead letters, decisions. Records that cannot be read are left out (SAFE-1)."""

from __future__ import annotations

from uuid import UUID

from rota.backend.messages import JobKey, RunQuery
from rota.model.run import Decision, JobRun
from rota_backends.cas import keys
from rota_backends.cas.records import DAMAGE, Run, load_or_none, read_run
from rota_backends.cas.session import Session
from rota_backends.cas.step import Step
from rota_backends.cas.store import Versioned


async def runs(session: Session, query: RunQuery) -> list[JobRun]:
    """One run, the history of a job, or the dead letters of a scope (HIST-1)."""
    if query.run_id is not None:
        run = await session.find(query.run_id, query.scope_id)
        return [] if run is None else [run.view()]
    if query.dead_letters:
        return await _letters(session, query)
    found = await session.store.scan(keys.runs(JobKey(query.scope_id, query.job_id or "")), "", query.limit)
    return [run.view() for run in map(readable, found) if run is not None]


async def _letters(session: Session, query: RunQuery) -> list[JobRun]:
    """Oldest first, by when they died and then by arrival."""
    after = ""
    if query.after is not None:
        last = await session.find(query.after, query.scope_id)
        if last is None or last.ended_at is None:
            return []
        after = keys.letter(last.scope_id, last.ended_at, last.seq, last.run_id)
    found: list[JobRun] = []
    async for each in session.all(keys.letters(query.scope_id), after):
        run = await readable_at(session, each.value.decode())
        if run is not None and query.job_id in (None, run.job_id):
            found.append(run.view())
            if len(found) == query.limit:
                break
    return found


async def decisions(session: Session, key: JobKey, limit: int) -> list[Decision]:
    """The newest first (HIST-5)."""
    newest = (await session.read(key)).lane.decisions
    oldest = max(newest - min(limit, keys.DECISIONS_KEPT), 0)
    where = [keys.decision(key, number) for number in range(newest, oldest, -1)]
    found = await session.get(where)
    known = [load_or_none(found[each].value, Decision) for each in where if each in found]
    return [decision for decision in known if decision is not None]


async def discard(session: Session, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
    """Take a dead letter out of the list; the run stays in history."""
    found = await session.find(run_id, scope_id)
    return found is not None and await unletter(session, found, request_id)


async def unletter(session: Session, found: Run, request_id: UUID) -> bool:
    """False if it was dealt with before, unless by this very request."""

    async def change(step: Step) -> bool:
        letter = await step.run_by_id(found.run_id)
        if letter is None or not letter.is_letter:
            return letter is not None and letter.ended_by == request_id
        letter.ended_by = request_id
        step.unletter(letter)
        return True

    return await session.change(found.key, change)


async def readable_at(session: Session, key: str) -> Run | None:
    """The run under a key, if it is still there and can be read."""
    found = (await session.store.get([key])).get(key)
    return None if found is None else readable(found)


def readable(found: Versioned) -> Run | None:
    """A run, if it can be read."""
    try:
        return read_run(found.value)
    except DAMAGE:
        return None
