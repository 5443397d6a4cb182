"""What a clause of `PortContract` works with: an open backend, its clock, and short ways to make jobs and runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from rota.backend import (
    Backend,
    Claim,
    ClaimRequest,
    JobKey,
    NewRun,
    PauseChange,
    Registered,
    Registration,
    RunQuery,
)
from rota.cron import Cron
from rota.decide.attempt import dead_lettered, succeeded
from rota.model.definition import JobDefinition, Manual, OnEvent
from rota.model.run import AttemptOutcome, Cause, RunState

if TYPE_CHECKING:
    from rota_contracts.backend_harness import BackendHarness

LEASE = timedelta(seconds=30)
LANE_LIMIT = 100
SCOPE = "default"


class Port:
    """One clause's backend. Nothing runs here but the calls of the clause: there is no node."""

    def __init__(self, harness: BackendHarness) -> None:
        self.backend: Backend = harness.backend
        self._harness = harness

    async def step(self, **amount: float) -> None:
        """Set the store's clock forward, or back (uses "virtual")."""
        await self._harness.step(timedelta(**amount))

    def now(self) -> datetime:
        """The store's time, as the harness set it (uses "virtual")."""
        return self._harness.now()

    async def register(self, job_id: str = "job", handler: str = "work", next_due: datetime | None = None) -> JobKey:
        """Store or replace a manual job, or one with a cron trigger that is due next at `next_due`."""
        trigger = Manual() if next_due is None else Cron("* * * * *")
        return await self._store(JobDefinition(job_id, handler, trigger), next_due)

    async def listen(self, job_id: str = "job", *, module: str = "shop", event_type: str = "Ordered") -> JobKey:
        """Store a job that waits for events."""
        return await self._store(JobDefinition(job_id, "work", OnEvent(module, event_type)), None)

    async def _store(self, definition: JobDefinition, next_due: datetime | None) -> JobKey:
        key = JobKey(SCOPE, definition.job_id)
        new = Registration(definition, await self.revision(key), uuid4(), next_due=next_due)
        told = await self.backend.register(new)
        assert told is Registered.STORED, f"a registration at the current revision was not stored: {told}"
        return key

    async def revision(self, key: JobKey) -> int:
        """The job's revision, which the next change has to name."""
        return (await self.backend.standing(key)).revision

    async def pause(self, key: JobKey, reason: str | None) -> None:
        """Pause the job, or resume it (None)."""
        change = PauseChange(key, reason, await self.revision(key), None)
        assert await self.backend.pause(change), f"a pause at the current revision was refused: {change}"

    async def trigger(self, key: JobKey, delay: timedelta | None = None) -> UUID:
        """Queue a run, and give its id."""
        run_id = uuid4()
        told = await self.backend.enqueue([NewRun(key, run_id, Cause.MANUAL, LANE_LIMIT, delay=delay)])
        assert told == [run_id], f"enqueue answered {told} instead of the id of the new run"
        return run_id

    async def claim(
        self,
        node: str = "one",
        handlers: Iterable[str] = ("work",),
        limit: int = 10,
        queues: dict[str, int] | None = None,
    ) -> list[Claim]:
        """The runs that the node is handed."""
        return (await self.backend.claim(ClaimRequest(node, frozenset(handlers), limit, LEASE, queues))).claims

    async def running(self, key: JobKey) -> Claim:
        """Queue a run of a job that has none, and claim it."""
        run_id = await self.trigger(key)
        claims = await self.claim()
        assert [claim.run_id for claim in claims] == [run_id], f"one run is ready; handed over were {claims}"
        return claims[0]

    async def succeed(self, key: JobKey) -> UUID:
        """A run of the job that has succeeded."""
        claim = await self.running(key)
        assert (await self.backend.settle([succeeded(claim, "one")]))[0] == [True], "a valid lease was refused"
        return claim.run_id

    async def die(self, key: JobKey) -> UUID:
        """A run of the job that is a dead letter."""
        claim = await self.running(key)
        letter = dead_lettered(claim, "one", AttemptOutcome.FAILED, "boom", "permanent")
        assert (await self.backend.settle([letter]))[0] == [True], "a valid lease was refused"
        return claim.run_id

    async def history(self, key: JobKey) -> list[UUID]:
        """The ids of the job's runs, newest first."""
        return [run.run_id for run in await self.backend.runs(RunQuery(key.scope_id, key.job_id))]

    async def state(self, run_id: UUID) -> RunState:
        """The state of a run that is stored."""
        runs = await self.backend.runs(RunQuery(SCOPE, run_id=run_id))
        assert len(runs) == 1, f"the run {run_id} was asked for; given were {runs}"
        return runs[0].state
