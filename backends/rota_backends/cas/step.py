"""One try at changing a job: the lane as it was read, and the writes to commit if no other node was faster.

Everything about a job is written together with its lane record, and that only at the version it was read with. So
whatever was read of the job after its lane is still true when the commit succeeds, and a step needs no other guard.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.backend.messages import REPLAY_MEMORY, Audience, Bookmark, FactKind, JobKey
from rota.model.definition import OnEvent
from rota.model.run import Cause, Decision, RunState
from rota_backends.cas import keys
from rota_backends.cas.records import (
    DAMAGE,
    Entry,
    Holding,
    Lane,
    Place,
    Run,
    Taken,
    Told,
    dump,
    load,
    load_or_none,
    read_run,
    run_of_entry,
    text_without_payload,
)
from rota_backends.cas.store import CasStore, Put, Versioned


class Moved(Exception):
    """The job was changed between two reads of a step: the reads do not fit together, so read again."""


class Passed(Exception):
    """A bookmark is not any more where it was when the events after it were read."""


async def run_at(store: CasStore, key: str) -> Run | None:
    """The run under a key, if it is still there."""
    found = (await store.get([key])).get(key)
    return None if found is None else read_run(found.value)


async def run_by_id(store: CasStore, run_id: UUID) -> Run | None:
    """A run, by way of the key under its id."""
    key = keys.ident(run_id)
    found = (await store.get([key])).get(key)
    return None if found is None else await run_at(store, found.value.decode())


class Step:
    """A lane as it was read, and the writes that go with its change. Nothing is written until `puts` are committed."""

    def __init__(
        self,
        store: CasStore,
        key: JobKey,
        found: Versioned | None,
        now: datetime,
        *,
        tells: bool,
        next_tick: Callable[[int], int],
    ) -> None:
        self.now = now
        self.lane = lane_of(key, found, now)
        self.tells = tells
        self._store = store
        self._next_tick = next_tick
        self._found = found
        self._before = dump(self.lane, Lane)
        self._index = index(self.lane)
        self._was_ready = is_ready(self.lane)
        self._puts: dict[str, Put] = {}

    # --- reading ---

    async def run_of(self, entry: Entry) -> Run:
        try:
            run = await run_at(self._store, keys.run(self.lane.key, entry.seq))
        except DAMAGE as error:
            return run_of_entry(entry, self.lane, self.now, error)
        if run is None:
            raise Moved
        return run

    async def run_by_id(self, run_id: UUID) -> Run | None:
        """A run of this very job."""
        run = await run_by_id(self._store, run_id)
        return run if run is not None and run.key == self.lane.key else None

    async def holder(self, kind: str, text: str, since: Bookmark | None = None) -> UUID | None:
        """The holder of an idempotency key of this job; raises `Passed` if a bookmark has moved.

        The bookmark is read after the lane, which is written only as it was read: if it has not moved, this job was
        registered before it does (EVENT-5). So it need not be part of the commit, where sweeps would be rivals.
        """
        key, mark = keys.taken(kind, self.lane.key, text), "" if since is None else keys.setting(since.name)
        found = await self._store.get([key, mark] if since is not None else [key])
        if since is not None and setting_value(found.get(mark)) != since.position:
            raise Passed
        return self._holder(found.get(key))

    async def replayed(self, letter: UUID) -> UUID | None:
        """By which run a letter of this scope was replayed, if that is remembered."""
        return await self._held(keys.replayed(self.lane.scope_id, letter))

    async def _held(self, key: str) -> UUID | None:
        return self._holder((await self._store.get([key])).get(key))

    def _holder(self, found: Versioned | None) -> UUID | None:
        held: Taken | None = None if found is None else load_or_none(found.value, Taken)
        return held.holder if held is not None and self.now < held.until else None

    # --- writing ---

    def tick(self) -> int:
        """The next number of this lane; numbers of different lanes are about in the order of time."""
        self.lane.tick = self._next_tick(max(self.lane.tick, keys.micros(self.now)))
        return self.lane.tick

    def put(self, key: str, value: bytes | None, expected: int | None = None) -> None:
        self._puts[key] = Put(key, expected, value)

    def save(self, run: Run) -> None:
        self.put(keys.run(run.key, run.seq), dump(run, Run))

    def take(self, kind: str, text: str, holder: UUID, ttl: timedelta) -> None:
        self._hold(keys.taken(kind, self.lane.key, text), holder, ttl)

    def remember_replay(self, letter: UUID, run_id: UUID) -> None:
        self._hold(keys.replayed(self.lane.scope_id, letter), run_id, REPLAY_MEMORY)

    def _hold(self, key: str, holder: UUID, ttl: timedelta) -> None:
        until = self.now + ttl
        self.put(key, dump(Taken(holder, until), Taken))
        self.put(keys.at("expiry", until, key), b"")

    def new_run(self, run_id: UUID, cause: Cause, payload: bytes | None = None) -> Run:
        """A run of the job as it is now; `arrive` or `finish` stores it."""
        lane = self.lane
        assert lane.definition is not None
        run = Run(run_id, self.tick(), *lane.key, lane.definition, cause, self.now, payload)
        self.put(keys.ident(run_id), keys.run(lane.key, run.seq).encode(), expected=0)
        return run

    def arrive(self, run: Run) -> None:
        """At the tail of its lane."""
        self.lane.queue.append(Entry(run.run_id, run.seq, run.cause, run.job.handler_name, run.start_at))
        self.save(run)

    def finish(self, run: Run, state: RunState, reason: str | None) -> None:
        run.end(state, self.now, reason)
        if state is RunState.DEAD:
            run.is_letter = True
            self.put(_letter_of(run), keys.run(run.key, run.seq).encode())
            self.save(run)
            self._tell(Audience.ADMINS, FactKind.DEAD_LETTERED, run)
        else:
            self.keep(run)

    def keep(self, run: Run) -> None:
        """In history, under retention."""
        assert run.ended_at is not None
        self.lane.kept += 1
        self.put(keys.at("done", run.ended_at, run.run_id.hex), keys.run(run.key, run.seq).encode())
        self.save(run)

    def unletter(self, letter: Run) -> None:
        self.put(_letter_of(letter), None)
        letter.is_letter = False
        self.keep(letter)

    def forget(self, run: Run) -> None:
        assert run.ended_at is not None
        self.lane.kept -= 1
        self.put(keys.run(run.key, run.seq), None)
        self.put(keys.ident(run.run_id), None)
        self.put(keys.at("done", run.ended_at, run.run_id.hex), None)

    def tell(self, run: Run, *kinds: FactKind) -> None:
        for kind in kinds if self.tells else ():
            self._tell(Audience.EVENTS, kind, run)

    def _tell(self, audience: Audience, kind: FactKind, run: Run) -> None:
        error = None if kind is FactKind.TRIGGERED else run.error
        self._record(
            audience, kind, run.definition, run.run_id, run.attempt, 0, run.cause, run.due, run.started_at, error,
            run.start_at, run.records, run.depth + 1,
        )  # fmt: skip

    def tell_registered(self) -> None:
        if self.tells and self.lane.definition is not None:
            self._record(Audience.EVENTS, FactKind.REGISTERED, self.lane.definition, None, 0, self.lane.revision)

    def _record(self, audience: Audience, kind: FactKind, definition: str, *more: Any) -> None:
        seq = keys.fact_seq(self.tick(), self.lane.key)
        told = Told(seq, kind, self.now, text_without_payload(definition, *self.lane.key), *more)
        self.put(keys.fact(audience, seq), dump(told, Told), expected=0)

    def remember(self, *decisions: Decision) -> None:
        """Consecutive decisions alike become one, as long as nothing fired between them (HIST-5)."""
        lane = self.lane
        for new in decisions:
            last = None if lane.fired_since else lane.last_decision
            if last is not None and (last.kind, last.run_id, last.detail) == (new.kind, new.run_id, new.detail):
                first, until = min(last.first, new.first), max(last.last, new.last)
                lane.last_decision = Decision(new.kind, first, until, last.count + new.count, new.run_id, new.detail)
            else:
                lane.last_decision = new
                lane.decisions += 1
            lane.fired_since = False
            self.put(keys.decision(lane.key, lane.decisions), dump(lane.last_decision, Decision))

    def puts(self) -> list[Put]:
        """What to commit; empty when nothing changed, as for a repeat."""
        lane = self.lane
        if is_ready(lane) and not self._was_ready:
            lane.since = self.tick()
        value = dump(lane, Lane)
        if not self._puts and value == self._before:
            return []
        after = index(lane)
        gone = [Put(key, None, None) for key in self._index if key not in after]
        new = [Put(key, None, entry) for key, entry in after.items() if self._index.get(key) != entry]
        version = 0 if self._found is None else self._found.version
        return [Put(keys.lane(lane.key), version, value), *gone, *new, *self._puts.values()]


def lane_of(key: JobKey, found: Versioned | None, now: datetime) -> Lane:
    """The lane under a key. One that cannot be read is as good as that of a removed job (SAFE-1): its tokens are above
    all that were given before, and scheduling the job again writes it anew."""
    if found is None:
        return Lane(*key)
    lane: Lane | None = load_or_none(found.value, Lane)
    return Lane(*key, token=keys.micros(now)) if lane is None else lane


def setting_value(found: Versioned | None) -> int:
    """The value of a setting; 0 when it is new."""
    value: int = 0 if found is None else load(found.value, int)
    return value


def is_ready(lane: Lane) -> bool:
    """Claimable without waiting for any instant."""
    if lane.definition is None or lane.paused is not None or lane.is_leased:
        return False
    return any(each.start_at is None for each in ([lane.head] if lane.head is not None else lane.queue))


def index(lane: Lane) -> dict[str, bytes]:
    """The keys by which this lane is found: a pure function of it, so that a change knows which keys to delete."""
    job, key = lane.job, lane.key
    found: dict[str, bytes] = {}
    if job is not None and lane.next_due is not None:
        found[keys.at("due", lane.next_due, keys.path(key))] = dump(key, JobKey)
    if job is not None and isinstance(job.trigger, OnEvent):
        trigger = job.trigger
        where = keys.subscriptions(trigger.source_module, trigger.event_type, key.scope_id)
        found[where + key.job_id] = dump(key, JobKey)
    if lane.lease_until is not None and lane.head is not None:
        held = Holding(key, lane.head.run_id, lane.token, lane.claim_number)
        found[f"held/{keys.name(lane.node_id or '')}/{keys.path(key)}"] = dump(held, Holding)
        found.update(_later(lane, lane.head, lane.lease_until, is_lease=True))
    elif job is not None and lane.paused is None:
        found.update(_in_line(lane))
    return found


def _in_line(lane: Lane) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    standing = [lane.head] if lane.head is not None else lane.queue
    now = next((each for each in standing if each.start_at is None), None)
    if now is not None:
        place = _place(lane, now, lane.since)
        found[keys.ready(place.priority, lane.since, lane.key)] = dump(place, Place)
    # Once for each handler: the first whose time comes may have to wait for one triggered before it (RUN-2), and that
    # one may need another node.
    timed = sorted((each.start_at, each.seq, each) for each in standing if each.start_at is not None)
    for start, entry in {entry.handler: (start, entry) for start, _, entry in reversed(timed)}.values():
        found.update(_later(lane, entry, start))
    return found


def _later(lane: Lane, entry: Entry, instant: datetime, *, is_lease: bool = False) -> dict[str, bytes]:
    place = _place(lane, entry, keys.micros(instant), is_lease=is_lease)
    where = f"{keys.path(lane.key)}/{keys.name(entry.handler)}"
    return {keys.at("later", instant, where): dump(place, Place)}


def _place(lane: Lane, entry: Entry, order: int, *, is_lease: bool = False) -> Place:
    job = lane.job
    queue, priority = ("", 0) if job is None else (job.queue, job.priority)
    return Place(lane.key, order, priority, queue, entry.handler, is_lease)


def _letter_of(run: Run) -> str:
    assert run.ended_at is not None
    return keys.letter(run.scope_id, run.ended_at, run.seq, run.run_id)
