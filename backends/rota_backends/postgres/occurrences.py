"""Ticks, triggers and events become runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from uuid import UUID

from rota.backend import (
    Bookmark,
    Due,
    DueJob,
    EventLimits,
    FireResult,
    Firing,
    JobKey,
    NewRun,
    Refusal,
)
from rota.backend.partly import partly
from rota.decide.events import NO_RUN, depth_error, event_answer, event_occurrence, event_run_id, rejection
from rota.errors import StoreUnavailable
from rota.model.event import Event
from rota_backends.postgres import rows
from rota_backends.postgres.caller_transaction import arrive_within
from rota_backends.postgres.connections import Row
from rota_backends.postgres.definitions import Found, event_text
from rota_backends.postgres.store import Store
from rota_backends.postgres.triggers import Answers
from rota_backends.postgres.wakeups import WITHIN

_PASSED = "passed"  # the answer if the bookmark has moved since the events were read
_MANY = 400  # triggers from which on two statements side by side are faster
_ANY_TIME = datetime.min.replace(tzinfo=UTC)  # of a decision that only the store knows the time of
_REFUSALS = {each.value: each for each in Refusal}
_RESULTS = {each.value: each for each in FireResult}
_PAGE = 500  # jobs that hear one event and whose lanes are locked by one statement, which has a time limit


class Occurrences(Store):
    """See sql/0004."""

    async def due(self, limit: int) -> Due:
        """Jobs that cannot be decoded are left out, and do not count: others are due all the same (SAFE-1)."""
        asked, jobs = limit, list[DueJob]()
        while True:
            found = await self._fetch(self._sql.due, self._now(), asked)
            owed = [row for row in found if row["job_id"] is not None]
            definitions = await self._definitions(row["definition"] for row in owed)
            jobs = [_due(row, definitions) for row in owed if row["definition"] not in definitions.unreadable]
            if len(owed) < asked or len(jobs) >= limit:
                return Due(found[0]["at"], jobs[:limit], found[0]["next_at"])
            asked += limit

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        answers = await self._connections.value(self._sql.fire, self._now(), self._announcer.tag(), rows.firings(batch))
        results = [_RESULTS[answer] for answer in answers]
        if FireResult.FIRED in results:
            self._wake()
        return results

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        """Two ways: in the caller's transaction into `arrival`, else into the lanes. There, triggers of many callers go
        together; one with a key goes alone."""
        if within is not None:
            return [await self._arrive(each, within) for each in batch]
        if any(each.idempotency_key is not None for each in batch):
            return await self._one_by_one(batch)
        return await (self._triggers.put(batch) if len(batch) < _MANY else self._in_halves(batch))

    async def _arrive(self, new: NewRun, connection: object) -> UUID | Refusal:
        key = new.idempotency_key
        run_id, refusal = await arrive_within(
            connection, self._sql,
            (
                self._now(), WITHIN, *new.key, new.run_id, new.cause.value, new.lane_limit, new.payload, new.delay,
                rows.handlers_text(new), None if key is None else key.key, None if key is None else key.ttl,
            ),
        )  # fmt: skip
        return run_id or _REFUSALS[refusal]

    async def _one_by_one(self, batch: Sequence[NewRun]) -> Answers:
        """Each key is waited for alone: two statements with several keys could wait for each other."""
        answers: Answers = []
        with partly(answers):
            for each in batch:
                answers += await (self._triggers.put if each.idempotency_key is None else self._store_triggers)([each])
        return answers

    async def _in_halves(self, batch: Sequence[NewRun]) -> Answers:
        """Order is per job: each half of the jobs is stored by its own statement, side by side."""
        halves = [[n for n, each in enumerate(batch) if hash(each.key) % 2 == half] for half in range(2)]
        told = await asyncio.gather(
            *(self._store_triggers([batch[n] for n in half]) for half in halves if half), return_exceptions=True
        )
        with partly(not isinstance(each, StoreUnavailable) for each in told):
            for error in told:
                if isinstance(error, BaseException):
                    raise error
        numbers = [n for half in halves for n in half]
        answers = dict(zip(numbers, (each for part in told if isinstance(part, list) for each in part), strict=True))
        return [answers[n] for n in range(len(batch))]

    async def _store_triggers(self, batch: Sequence[NewRun]) -> Answers:
        """One statement; a trigger with a key must be the only one."""
        single = {each.run_id: each for each in batch}
        if len(single) < len(batch):  # the statement does not look for the same run twice
            answered = dict(zip(single, await self._store_triggers([*single.values()]), strict=True))
            return [answered[each.run_id] for each in batch]
        fetch = self._fetch if batch[0].idempotency_key is None else self._connections.fetch_waiting
        *others, last = await fetch(self._sql.enqueue, self._now(), self._announcer.tag(), *rows.trigger_columns(batch))
        if last["woke"]:
            self._wake()
        answers: Answers = [each.run_id for each in batch]
        for row in others:
            answers[row["number"] - 1] = row["run_id"] or _REFUSALS[row["refusal"]]
        return answers

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        heard = await self._heard({_kind(event) for event in events})
        if not heard:
            return [[]] * len(events)
        answers: list[Answers] = [[] for _ in events]
        with partly(answers):
            for event, told in zip(events, answers, strict=True):
                if _kind(event) in heard and not await self._notify(event, limits, since, told):
                    return []
        return answers

    async def _heard(self, kinds: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """The kinds that some job hears. Most events concern no job: one statement tells for a whole batch."""
        found = await self._fetch(self._sql.heard, [module for module, _ in kinds], [kind for _, kind in kinds])
        return {(row[0], row[1]) for row in found}

    async def _notify(self, event: Event, limits: EventLimits, since: Bookmark | None, told: Answers) -> bool:
        """Returns False if the bookmark has moved; then no more runs are made."""
        kind = (event.scope_id, *_kind(event), event.subject)
        keys = [JobKey(row["scope_id"], row["job_id"]) for row in await self._fetch(self._sql.listening, *kind)]
        for page in (keys[start : start + _PAGE] for start in range(0, len(keys), _PAGE)):
            some = await self._notify_some(event, limits, page, since)
            if some is None:
                return False
            told += some
        return True

    async def _notify_some(
        self, event: Event, limits: EventLimits, keys: Sequence[JobKey], since: Bookmark | None
    ) -> Answers | None:
        occurrences = [event_occurrence(key, event) for key in keys]
        found = await self._fetch(
            self._sql.notify, self._now(), self._announcer.tag(), event.scope_id, *_kind(event), event.subject,
            event.event_id, event_text(event), event.occurred_at, event.depth, limits.memory, limits.lane_limit,
            depth_error(event, limits), rejection(event, _ANY_TIME).detail, NO_RUN,
            [key.scope_id for key in keys], [key.job_id for key in keys],
            occurrences, [event_run_id(key, occurrence) for key, occurrence in zip(keys, occurrences, strict=True)],
            *(since or (None, None)),
        )  # fmt: skip
        if any(row["refusal"] == _PASSED for row in found):
            return None
        if any(row["woke"] for row in found):
            self._wake()
        return [event_answer(row["run_id"]) if row["run_id"] else _REFUSALS[row["refusal"]] for row in found]


def _due(row: Row, definitions: Found) -> DueJob:
    key = JobKey(row["scope_id"], row["job_id"])
    return DueJob(key, definitions[row["definition"]], row["revision"], row["next_due"], row["paused"])


def _kind(event: Event) -> tuple[str, str]:
    return event.source_module, event.event_type
