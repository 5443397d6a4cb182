"""The PostgreSQL backend: every method of the port is one statement, most of them a call of a function in the schema.

What is decided inside the store is decided there, under the lock of the lane (sql/0002 to 0005); this side turns values
into columns and rows into values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from rota.backend import (
    Backend,
    Census,
    Claimed,
    ClaimRequest,
    Due,
    DueJob,
    Enqueue,
    EventRef,
    Fact,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    LockGrant,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Renewal,
    RunQuery,
    SetAside,
    Settlement,
    Standing,
    StoredJob,
    event_run_id,
)
from rota.capability import Capability, Precision
from rota.clock import Clock, VirtualClock
from rota.definition import OnEvent
from rota.errors import ScheduleError
from rota.run import Decision, JobRun
from rota_backends.postgres import migrations, rows
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.definitions import Definitions, as_json, definition_text, event_text
from rota_backends.postgres.statements import Statements
from rota_backends.postgres.triggers import Answers, Triggers
from rota_backends.postgres.wakeups import WITHIN, Announcer, Listener
from rota_backends.postgres.within import call_within

_NOW, _CLAIM, _EXPIRED, _REFUSED = range(4)
_LOST, _STOP, _STRAY = 1, 2, 3
_REFUSALS = {each.value: each for each in Refusal}
_RESULTS = {each.value: each for each in FireResult}


class PostgresBackend(Backend):
    """Jobs in a schema of a PostgreSQL database (14 or newer). See docs/how-to/postgres.md for every option.

    `clock=None` is the database's clock. `pooler=True` is for PgBouncer and its like in transaction mode.
    """

    name = "postgres"
    capabilities = (
        Capability.DURABLE | Capability.DISTRIBUTED | Capability.TRANSACTIONAL_TRIGGER | Capability.PUSH_WAKEUP
    )

    hands = 2  # the server works on one batch while the node works on the other

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        precision: Precision = Precision.MINUTE,
        pool_size: int = 4,
        timeout: timedelta = timedelta(seconds=4),
        pooler: bool = False,
        migrate: bool = True,
    ) -> None:
        super().__init__(clock=clock, precision=precision)
        if not schema or len(schema.encode()) > 63 or "\x00" in schema:
            raise ScheduleError("schema", "must be a name of 1 to 63 bytes")
        if pool_size < 1:
            raise ScheduleError("pool_size", "must be at least 1")
        if isinstance(clock, VirtualClock):
            self.patience = timedelta(0)  # real seconds mean nothing where time is moved by hand
        self._own_clock = clock
        self._migrate = migrate
        self._schema = schema
        self._connections = Connections(dsn, size=pool_size, timeout=timeout, pooler=pooler)
        self._sql = Statements(schema)
        self._definitions = Definitions(self._connections, self._sql)
        self._announcer = Announcer(self._connections, self._sql)
        self._triggers = Triggers(self._store_triggers)
        self._wakes: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._opened = 0
        self._opening = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """`postgresql://user@host/database?schema=jobs`; besides the driver's own parameters: schema, pool_size,
        precision, pooler, migrate."""
        dsn, options = _split(url)
        return cls(dsn, clock=clock, **options)

    def __repr__(self) -> str:
        return f"PostgresBackend(schema={self._schema!r})"

    # --- life and time ---

    async def open(self) -> None:
        async with self._opening:
            if not self._opened:
                self._connections.open()
                try:
                    await migrations.check(self._connections, self._schema, migrate=self._migrate)
                except BaseException:
                    await self._connections.close()
                    raise
            self._opened += 1

    async def close(self) -> None:
        async with self._opening:
            self._opened -= 1
            if self._opened:
                return
            if self._listener is not None:
                await self._listener.stop()
                self._listener = None
            await self._announcer.stop()
            await self._triggers.stop()
            await self._connections.close()

    async def now(self) -> datetime:
        if self._own_clock is not None:
            return self._own_clock.now()
        now: datetime = await self._connections.value(self._sql.now)
        return now

    def _now(self) -> datetime | None:
        """What statements are told of the time; None: the database looks at its own clock."""
        return None if self._own_clock is None else self._own_clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        if self._listener is None:
            self._listener = Listener(self._connections, self._schema, self._announcer.own, self._wake)
            self._listener.start()
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    def _wake(self) -> None:
        for wake in list(self._wakes):
            wake()

    async def tell_facts(self) -> None:
        await self._fetch(self._sql.tell_facts)

    async def _fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._connections.fetch(sql, *args)

    # --- its schema, for `rota db` ---

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations that were applied."""
        self._connections.open()
        try:
            done = await migrations.bring_up_to_date(self._connections, self._schema)
        finally:
            await self._connections.close()
        return [f"{each.version:04} {each.name}" for each in done]

    async def schema_version(self) -> tuple[int, int]:
        """The version in the database (0: none), and the one this code works with."""
        self._connections.open()
        try:
            return await migrations.applied(self._connections, self._schema), migrations.newest()
        finally:
            await self._connections.close()

    def migration_script(self) -> str:
        """All migrations as one SQL script, for whoever applies them by hand."""
        return migrations.script(self._schema)

    # --- jobs ---

    async def standing(self, key: JobKey) -> Standing:
        (row,) = await self._fetch(self._sql.standing, *key, self._now())
        if row["lane"] is None:
            return Standing(row["at"])
        job = (await self._stored([row]))[0] if row["definition"] is not None else None
        return Standing(row["at"], row["revision"], row["decided"], job)

    async def _stored(self, found: Sequence[Row]) -> list[StoredJob]:
        definitions = await self._definitions(row["definition"] for row in found)
        return [rows.stored_job(row, definitions[row["definition"]]) for row in found]

    async def register(self, batch: Sequence[Registration]) -> list[Registered]:
        return [await self._register(each) for each in batch]

    async def _register(self, new: Registration) -> Registered:
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

    async def remove(self, key: JobKey, request_id: UUID) -> bool:
        return bool(await self._connections.value(self._sql.remove, self._now(), *key, request_id))

    async def pause(self, change: PauseChange) -> bool:
        is_changed = await self._connections.value(
            self._sql.pause, self._now(), self._announcer.tag(), *change.key, change.reason, change.expected,
            change.next_due, change.decided, as_json(change.decisions),
        )  # fmt: skip
        self._wake()
        return bool(is_changed)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        return await self._stored(
            await self._fetch(self._sql.jobs, query.scope_id, query.after, query.owner, query.limit)
        )

    # --- occurrences ---

    async def due(self, limit: int) -> Due:
        found = await self._fetch(self._sql.due, self._now(), limit)
        at, next_at = found[0]["at"], found[0]["next_at"]
        owed = [row for row in found if row["job_id"] is not None]
        definitions = await self._definitions(row["definition"] for row in owed)
        jobs = [
            DueJob(
                JobKey(row["scope_id"], row["job_id"]), definitions[row["definition"]], row["revision"],
                row["next_due"], row["paused"],
            )
            for row in owed
        ]  # fmt: skip
        return Due(at, jobs, next_at)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        answers = await self._connections.value(self._sql.fire, self._now(), self._announcer.tag(), rows.firings(batch))
        results = [_RESULTS[answer] for answer in answers]
        if FireResult.FIRED in results:
            self._wake()
        return results

    async def enqueue(self, batch: Sequence[Enqueue], *, within: object | None = None) -> list[UUID | Refusal]:
        if within is not None:
            return [await self._arrive(each, within) for each in batch]
        if len(batch) == 1 and batch[0].idempotency_key is None:
            return await self._triggers.put(batch)
        # Each key is waited for alone: two statements with several keys could wait for each other.
        return (
            [await self._enqueue_one(each) for each in batch] if _has_keys(batch) else await self._triggers.put(batch)
        )

    async def _enqueue_one(self, new: Enqueue) -> UUID | Refusal:
        if new.idempotency_key is None:
            return (await self._triggers.put([new]))[0]
        (row,) = await self._fetch(self._sql.enqueue_keyed, *self._trigger(new, self._announcer.tag()))
        if row["woke"]:
            self._wake()
        return row["run_id"] or _REFUSALS[row["refusal"]]

    def _trigger(self, new: Enqueue, tag: str | None) -> tuple[Any, ...]:
        key = new.idempotency_key
        return (
            self._now(), tag, *new.key, new.run_id, new.cause.value, new.lane_limit, new.payload, new.delay,
            None if key is None else key.key, None if key is None else key.ttl,
        )  # fmt: skip

    async def _arrive(self, new: Enqueue, connection: object) -> UUID | Refusal:
        run_id, refusal = await call_within(connection, self._sql.arrive, self._trigger(new, WITHIN))
        return run_id or _REFUSALS[refusal]

    async def _store_triggers(self, batch: Sequence[Enqueue]) -> Answers:
        found = await self._fetch(
            self._sql.enqueue, self._now(), self._announcer.tag(),
            [each.key.scope_id for each in batch], [each.key.job_id for each in batch],
            [each.run_id for each in batch], [each.cause.value for each in batch], [each.lane_limit for each in batch],
            [each.payload for each in batch], [each.delay for each in batch], [each.replay_of for each in batch],
        )  # fmt: skip
        if any(row["woke"] for row in found):
            self._wake()
        return [row["run_id"] or _REFUSALS[row["refusal"]] for row in found]

    async def notify(self, batch: Sequence[EventRef]) -> list[list[UUID | Refusal]]:
        heard = await self._heard({(ref.event.source_module, ref.event.event_type) for ref in batch})
        return [
            await self._notify(ref) if (ref.event.source_module, ref.event.event_type) in heard else [] for ref in batch
        ]

    async def _heard(self, kinds: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Most events concern no job: one question for a whole batch of them."""
        found = await self._fetch(self._sql.heard, [module for module, _ in kinds], [kind for _, kind in kinds])
        return {(row[0], row[1]) for row in found}

    async def _notify(self, ref: EventRef) -> list[UUID | Refusal]:
        event = ref.event
        kind = (event.scope_id, event.source_module, event.event_type, event.subject)
        keys = [JobKey(row["scope_id"], row["job_id"]) for row in await self._fetch(self._sql.listening, *kind)]
        if not keys:
            return []
        found = await self._fetch(
            self._sql.notify, self._now(), self._announcer.tag(), *kind, event.event_id, event_text(event),
            event.occurred_at, event.depth, ref.memory, ref.lane_limit, ref.max_depth,
            [key.scope_id for key in keys], [key.job_id for key in keys],
            [event_run_id(key, event.event_id) for key in keys],
        )  # fmt: skip
        if any(row["woke"] for row in found):
            self._wake()
        return [row["run_id"] or _REFUSALS[row["refusal"]] for row in found]

    # --- work ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        _, claimed = await self.settle((), request)
        assert claimed is not None
        return claimed

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        found = await self._fetch(
            self._sql.exchange, self._now(), *rows.settlement_columns(batch), keep, *rows.claim_arguments(then)
        )
        settled = [True] * len(batch)
        refused = [row["number"] - 1 for row in found if row["what"] == _REFUSED]
        if refused:
            await self._look_again(batch, refused, settled)
        return settled, None if then is None else await self._claimed(found)

    async def _look_again(self, batch: Sequence[Settlement], refused: Sequence[int], settled: list[bool]) -> None:
        """A repeat of a settlement that was stored is as good as the first (OPS-2)."""
        asked = [batch[index] for index in refused]
        before = await self._fetch(
            self._sql.settled_before, [each.key.scope_id for each in asked], [each.key.job_id for each in asked],
            [each.token for each in asked], [each.node_id for each in asked],
        )  # fmt: skip
        for index, row in zip(refused, before, strict=True):
            settled[index] = row[0]

    async def _claimed(self, found: Sequence[Row]) -> Claimed:
        last = found[-1]
        claims = [row for row in found if row["what"] == _CLAIM]
        expired = [row for row in found if row["what"] == _EXPIRED]
        definitions = await self._definitions(row["definition"] for row in (*claims, *expired))
        return Claimed(
            last["at"],
            [rows.claim(row, definitions) for row in claims],
            [rows.claim(row, definitions) for row in expired],
            last["next_at"],
        )

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        found = await self._fetch(
            self._sql.renew, self._now(), node.node_id, sorted(node.handlers), node.slots, node.running, node.host,
            node.pid, node.lease, node.started_at, [ref.run_id for ref in leases], [ref.token for ref in leases],
            [ref.lease for ref in leases],
        )  # fmt: skip
        renewal = Renewal(found[-1]["at"], [], [], [])
        for row in found:
            if row["what"] == _LOST:
                renewal.lost.append(leases[row["number"] - 1])
            elif row["what"] == _STOP:
                renewal.stop.append((leases[row["number"] - 1], row["reason"]))
            elif row["what"] == _STRAY:
                key = JobKey(row["scope_id"], row["job_id"])
                renewal.strays.append(LeaseRef(key, row["run_id"], row["token"], node.lease))
        return renewal

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await self._fetch(
            self._sql.hand_back, self._now(), self._announcer.tag(), [ref.run_id for ref in leases],
            [ref.token for ref in leases], leaving,
        )  # fmt: skip
        self._wake()

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        is_cancelled = await self._connections.value(
            self._sql.cancel, self._now(), self._announcer.tag(), run_id, scope_id, reason, request_id
        )
        self._wake()
        return bool(is_cancelled)

    # --- reading and cleaning ---

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
        set_aside: Sequence[SetAside] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        found = await self._fetch(
            self._sql.relay, self._now(), node_id, list(done), [each.seq for each in set_aside],
            [each.error for each in set_aside], lease, [key.scope_id for key in skip], [key.job_id for key in skip],
            limit,
        )  # fmt: skip
        if found and found[0]["seq"] is None:
            return None
        definitions = await self._definitions(row["definition"] for row in found)
        return [rows.fact(row, definitions) for row in found]

    async def census(self, scope_id: str | None = None) -> Census:
        now = self._now()
        (row,) = await self._fetch(self._sql.census, now, scope_id)
        nodes = await self._fetch(self._sql.nodes, now)
        return Census(
            row["at"], row["jobs"], row["queued"], row["running"], row["letters"], row["aside"],
            tuple(rows.node(each) for each in nodes), tuple(row["missing"]),
        )  # fmt: skip

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        found = await self._fetch(self._sql.lock, self._now(), name, node_id, ttl)
        return LockGrant(name, found[0]["token"], found[0]["until"]) if found else None

    async def bookmark(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        stored: int = await self._connections.value(self._sql.bookmark, name, expected, value)
        return stored


def _has_keys(batch: Sequence[Enqueue]) -> bool:
    return any(each.idempotency_key is not None for each in batch)


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "schema": str,
    "pool_size": int,
    "precision": Precision,
    "pooler": lambda text: text in ("1", "true", "yes"),
    "migrate": lambda text: text in ("1", "true", "yes"),
}


def _split(url: str) -> tuple[str, dict[str, Any]]:
    """The driver's part of a URL, and our own options in its query. No error shows the URL (OPS-3)."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    options: dict[str, Any] = {}
    for name, text in given:
        if name in _OPTIONS:
            try:
                options[name] = _OPTIONS[name](text)
            except ValueError:
                raise ScheduleError("backend", f"the option {name} cannot be {text!r}") from None
    others = urlencode([(name, text) for name, text in given if name not in _OPTIONS])
    return urlunsplit(("postgresql", parts.netloc, parts.path, others, "")), options
