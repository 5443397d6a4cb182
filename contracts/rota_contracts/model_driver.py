"""The scheduler's side of the state machine: nodes on the clause's event loop, called from the machine's thread.

Each example has a scope of its own on the clause's one store, so no example sees another's jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

from attrs import frozen

from rota.clock import Gate
from rota.errors import JobNotFound, RotaError, RunNotFound
from rota.model.definition import JobDefinition
from rota.model.run import JobRun, JobStatus
from rota.protocol import JobScheduler
from rota_contracts.scene import Scene

T = TypeVar("T")

LEASE = timedelta(seconds=30)
_LATEST = 60  # seconds


@frozen
class Seen:
    """All that can be read of one scope."""

    schedules: list[JobDefinition]
    statuses: dict[str, JobStatus | None]
    histories: dict[str, list[JobRun]]
    letters: list[JobRun]


class ModelDriver:
    """Nodes that the machine calls, and the handler of all its jobs."""

    def __init__(self, scene: Scene, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        self.scene = scene
        self.nodes: list[JobScheduler] = []
        self.gates: dict[str, Gate] = {}
        self._loop = loop
        self._stack = stack
        self._examples = count(1)
        scene.handler("model")(self._handler)

    async def _handler(self, ctx: Any, payload: bytes) -> None:
        steps = payload.decode().split("|")
        step = steps[min(ctx.attempt, len(steps)) - 1]
        if step == "hold":
            await self.gates[ctx.scope_id].wait()
        elif step != "ok":
            raise ValueError(step)

    async def open_node(self) -> JobScheduler:
        return await self._stack.enter_async_context(self.scene.open(lease=LEASE))

    def new_scope(self) -> str:
        scope_id = f"model-{next(self._examples)}"
        self.gates[scope_id] = self.scene.new_gate()
        return scope_id

    async def step(
        self, work: Coroutine[Any, Any, T], passes: timedelta, scope_id: str, job_ids: tuple[str, ...]
    ) -> tuple[T | None, RotaError | None, Seen]:
        """Do it, let time pass, look at everything: in one turn of the machine's thread, for those are dear."""
        answer, refusal = None, None
        try:
            answer = await work
        except (JobNotFound, RunNotFound) as error:
            refusal = error
        await self.scene.harness.advance(passes)
        return answer, refusal, await self.look(scope_id, job_ids)

    async def look(self, scope_id: str, job_ids: tuple[str, ...]) -> Seen:
        """Whichever node is asked, it is the same."""
        one, two = self.nodes[0], self.nodes[-1]
        schedules, letters, statuses, histories = await asyncio.gather(
            one.list_schedules(scope_id),
            one.dead_letters(scope_id, limit=1000),
            asyncio.gather(*(two.status(job_id, scope_id=scope_id) for job_id in job_ids)),
            asyncio.gather(*(two.get_run_history(job_id, scope_id=scope_id, limit=1000) for job_id in job_ids)),
        )
        return Seen(
            schedules, dict(zip(job_ids, statuses, strict=True)), dict(zip(job_ids, histories, strict=True)), letters
        )

    async def told(self, job_id: str, count: int, scope_id: str) -> list[str]:
        """The types of the job's events; if there are fewer than `count`, the others may be late (HIST-3)."""
        for _ in range(_LATEST):
            if len(await self.scene.event_types(job_id, scope_id=scope_id)) >= count:
                break
            await self.scene.advance(seconds=1)
        return await self.scene.event_types(job_id, scope_id=scope_id)

    def begin_at_a_round_time(self) -> None:
        """Every example begins alike, so that one that failed fails again when Hypothesis looks closer."""
        now = self.scene.now()
        past = timedelta(minutes=now.minute % 2, seconds=now.second, microseconds=now.microsecond)
        self.call(self.scene.harness.advance(timedelta(minutes=2) - past))

    async def release(self, scope_id: str) -> None:
        held, self.gates[scope_id] = self.gates[scope_id], self.scene.new_gate()
        held.open()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
