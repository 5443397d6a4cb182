"""What the application does meanwhile: triggers of every kind, events, removals, a replaced schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from itertools import count
from random import Random
from uuid import UUID

from rota import Event, IdempotencyKey, JobDefinition, Scheduler, TriggerOnce, TriggersRefused
from rota.backend import Backend, JobKey
from rota.errors import OutcomeUnknown, StoreUnavailable
from tests.faults.event_store import FileEventStore
from tests.faults.evidence import Call, Evidence, Validity
from tests.faults.jobs import ORDERED, OTHER_SCOPE, definitions, moved, passing

_HOUR = timedelta(hours=1)
_STORE_AWAY = (StoreUnavailable, OutcomeUnknown)
# Seconds between two triggers of a job, on average: none is triggered faster than it can run.
_PACE = {
    "plain": 0.25, "keyed": 0.5, "delayed": 0.7, "ledger": 0.6, "flaky": 1.5, "poison": 1.2, "single": 5.0,
    "slow": 3.6, "blocking": 3.6, "late": 2.0, "other": 0.8, "event": 0.4, "passing": 3.0, "many": 3.0,
}  # fmt: skip
_ONCE_MORE = (*["plain"] * 4, "flaky", "flaky", "poison", "keyed", "delayed", "event", "other", "many")


class Workload:
    """Writes into the evidence what it did and what it was told."""

    def __init__(
        self, client: Scheduler, backend: Backend, events: FileEventStore, evidence: Evidence, rng: Random
    ) -> None:
        self._client = client
        self._backend = backend
        self._events = events
        self._evidence = evidence
        self._rng = rng
        self._numbers = count(1)
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_over = asyncio.Event()

    async def declare(self) -> None:
        """Every job, before any fault."""
        for definition in definitions():
            await self._client.schedule(definition)
            now = await self._backend.now()
            self._evidence.validities.append(Validity(definition, now, now + _HOUR))
            if definition.retry.max_attempts is not None:
                self._evidence.max_attempts[_key(definition)] = definition.retry.max_attempts

    async def go_on(self) -> None:
        """Until `stop`."""
        async with asyncio.TaskGroup() as group:
            for kind in _PACE:
                group.create_task(self._repeat(kind))

    async def _repeat(self, kind: str) -> None:
        while not self._is_over.is_set():
            if len(self._under_way) < 60:
                self._begin(self._act(kind))
            wait = self._rng.uniform(0.5, 1.5) * _PACE[kind]
            try:
                await asyncio.wait_for(self._is_over.wait(), wait)
            except TimeoutError:
                continue

    def _begin(self, work: Awaitable[None]) -> None:
        under_way = asyncio.ensure_future(work)
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)

    async def stop(self) -> None:
        """No new calls; those under way get their answer."""
        self._is_over.set()
        while self._under_way:
            await asyncio.gather(*self._under_way)

    async def _act(self, kind: str) -> None:
        special: dict[str, Callable[[], Awaitable[None]]] = {
            "keyed": self._keyed, "delayed": self._delayed, "event": self._event, "passing": self._passing,
            "many": self._many,
        }  # fmt: skip
        if kind in special:
            await special[kind]()
        elif kind == "other":
            await self._trigger(JobKey(OTHER_SCOPE, "plain"))
        else:
            await self._trigger(JobKey("default", kind))

    async def once_more(self) -> None:
        """After healing: everybody is served again, without anybody's help (B26)."""
        answered = len(self._evidence.calls)
        for kind in _ONCE_MORE:
            await self._act(kind)
        late = self._evidence.calls[answered:]
        self._evidence.unanswered += [f"{each.label} of {each.key.job_id}" for each in late if each.run_id is None]

    def _label(self) -> str:
        return f"call-{next(self._numbers)}"

    async def _trigger(self, key: JobKey, name: str | None = None, delay: timedelta | None = None) -> None:
        label = self._label()
        idempotency_key = None if name is None else IdempotencyKey(name, _HOUR)
        try:
            run_id = await self._client.trigger_once(
                key.job_id, scope_id=key.scope_id, payload=label.encode(), delay=delay, idempotency_key=idempotency_key
            )
        except _STORE_AWAY:
            run_id = None
        outcome = "info" if run_id is None else "ok"
        self._evidence.calls.append(Call(key, label, outcome, run_id, name, delay or timedelta(0)))

    async def _keyed(self) -> None:
        name = f"key-{next(self._numbers)}"
        await asyncio.gather(*[self._trigger(JobKey("default", "keyed"), name) for _ in range(3)])

    async def _many(self) -> None:
        """Of two jobs in one call, in turns."""
        keys = [JobKey(scope_id, "plain") for scope_id in ("default", OTHER_SCOPE)] * 3
        labels = [self._label() for _ in keys]
        many = [
            TriggerOnce(key.job_id, label.encode(), scope_id=key.scope_id)
            for key, label in zip(keys, labels, strict=True)
        ]
        run_ids: Sequence[UUID | None]
        try:
            run_ids = await self._client.trigger_many(many)
        except TriggersRefused as refused:
            if not all(isinstance(each, _STORE_AWAY) for each in refused.refused.values()):
                raise
            run_ids = refused.run_ids
        for key, label, run_id in zip(keys, labels, run_ids, strict=True):
            self._evidence.calls.append(Call(key, label, "info" if run_id is None else "ok", run_id))

    async def _delayed(self) -> None:
        await self._trigger(JobKey("default", "delayed"), delay=timedelta(seconds=self._rng.uniform(0.2, 1.5)))

    async def _event(self) -> None:
        """Written, and not notified: as if the writer had died in between. The sweep has to find it (EVENT-5)."""
        event = Event(*ORDERED, data=b"order")
        await self._events.write(event)
        self._evidence.written.append(event.event_id)

    async def _passing(self) -> None:
        definition = passing(next(self._numbers))
        key = _key(definition)
        self._evidence.runs.setdefault(key, [])
        try:
            await self._client.schedule(definition)
            await asyncio.gather(*[self._trigger(key) for _ in range(3)])
            await self._client.unschedule(key.job_id)
            self._evidence.removed[key] = await self._backend.now()
        except _STORE_AWAY:
            return

    async def move(self) -> None:
        """Replace the expression of a job."""
        for _ in range(20):
            before = await self._now()
            try:
                await self._client.schedule(moved())
            except _STORE_AWAY:
                continue
            after = await self._now()
            self._replace(Validity(moved(), after, after + _HOUR), until=before)
            return

    def _replace(self, new: Validity, *, until: datetime) -> None:
        old = [each for each in self._evidence.validities if each.definition.job_id == "moving"]
        for each in old:
            self._evidence.validities.remove(each)
            self._evidence.validities.append(Validity(each.definition, each.since, until))
        self._evidence.validities.append(new)

    async def _now(self) -> datetime:
        while True:
            try:
                return await self._backend.now()
            except _STORE_AWAY:
                await asyncio.sleep(0.1)


def _key(definition: JobDefinition) -> JobKey:
    return JobKey(definition.scope_id, definition.job_id)
