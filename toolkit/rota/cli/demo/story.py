"""What happens to the jobs from outside: somebody pauses one, the shop writes events, a deploy restarts the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

from attrs import define, field

from rota import (
    Capability,
    Event,
    HookedEventStore,
    InMemoryEventStore,
    JobNotifyEventStore,
    ScheduleError,
    Scheduler,
    VirtualClock,
)
from rota.backend import Backend
from rota.cli.demo.jobs import PaymentProvider, definitions, handlers
from rota.discovery import open_backend
from rota.model.run import JobRun

START = datetime(2026, 3, 2, 11, 52, tzinfo=UTC)
LENGTH = timedelta(minutes=26)
QUEUES = {"default": 3, "pulse": 1}  # few enough for the full hour to be crowded


class DeadLetters:
    """The notifier of the demo: an admin who looks at the screen."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    async def dead_letter(self, run: JobRun) -> None:
        self._tell(f"admins told: {run.job_id} is a dead letter after {run.attempt} attempts")


@define(eq=False)
class Stage:
    """Two that share a store: a node at work, and a client who looks on and acts. `told` is what was done by hand."""

    url: str
    clock: VirtualClock = field(factory=lambda: VirtualClock(START))
    provider: PaymentProvider = field(factory=PaymentProvider)
    told: list[tuple[datetime, str]] = field(factory=list)
    events: JobNotifyEventStore = field(factory=lambda: JobNotifyEventStore(HookedEventStore(InMemoryEventStore())))
    client: Scheduler = field(init=False)
    _backend: Backend = field(init=False)
    _node: AsyncExitStack = field(factory=AsyncExitStack)
    _done: int = 0

    def __attrs_post_init__(self) -> None:
        self._backend = open_backend(self.url, clock=self.clock)
        self.client = Scheduler(self._backend, handlers, concurrency=0)

    @property
    def is_durable(self) -> bool:
        return Capability.DURABLE in self._backend.capabilities

    def tell(self, sentence: str) -> None:
        self.told.append((self.clock.now(), sentence))

    async def __aenter__(self) -> Stage:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.stop_node()
        finally:
            await self.client.__aexit__(None, None, None)

    async def set(self) -> None:
        """Declare the jobs and let what is due at the first minute happen."""
        if (await self.client.admin.overview()).jobs:  # its own clock would be wrong for them
            raise ScheduleError("backend", "there are jobs in this store already; the demo wants one of its own")
        lasting = "outlive every process" if self.is_durable else "end with this process"
        self.tell(f"a node starts on {self.url.partition(':')[0]}: jobs, runs and decisions {lasting}")
        await self.start_node()
        for definition in definitions():
            await self.client.schedule(definition)
        await self.clock.advance()

    async def start_node(self) -> None:
        """A node as a new process would have it: all it knows is in the store."""
        node = Scheduler(
            open_backend(self.url, clock=self.clock) if self.is_durable else self._backend,
            handlers,
            events=self.events,
            services={VirtualClock: self.clock, PaymentProvider: self.provider},
            notifier=DeadLetters(self.tell),
            queues=QUEUES,
        )
        await self._node.enter_async_context(node)

    async def stop_node(self) -> None:
        """What it still runs is handed back."""
        await self._node.aclose()

    async def advance_to(self, instant: datetime) -> None:
        """Let time pass up to `instant`, with every act of the story in its place."""
        for after, act in ACTS[self._done :]:
            if START + after > instant:
                break
            await self.clock.advance(START + after - self.clock.now())
            await act(self)
            self._done += 1
        await self.clock.advance(instant - self.clock.now())


async def _products_change(stage: Stage) -> None:
    stage.tell("the shop writes three ProductChanged events: three runs of search-index, in order")
    await stage.events.write(*(Event("shop", "ProductChanged", subject=f"product-{n}") for n in (1, 2, 3)))


async def _pause(stage: Stage) -> None:
    stage.tell("newsletter is paused: template under review")
    await stage.client.pause("newsletter", reason="template under review")


async def _resume(stage: Stage) -> None:
    stage.tell("newsletter is resumed; what was due meanwhile is not made up")
    await stage.client.resume("newsletter")


async def _provider_returns(stage: Stage) -> None:
    stage.provider.is_up = True
    for letter in await stage.client.dead_letters():
        stage.tell(f"the provider is back: the dead letter of {letter.job_id} is replayed")
        await stage.client.replay(letter.run_id)


async def _node_leaves(stage: Stage) -> None:
    stage.tell("a deploy: the node leaves, and hands the run of inventory-sync back")
    await stage.stop_node()


async def _node_returns(stage: Stage) -> None:
    stage.tell("a new node starts: it takes the run up again, and makes one run for all ticks a job has missed")
    await stage.start_node()


Act = Callable[[Stage], Awaitable[None]]

ACTS: tuple[tuple[timedelta, Act], ...] = (
    (timedelta(minutes=0.5), _products_change),
    (timedelta(minutes=3.5), _pause),
    (timedelta(minutes=12), _resume),
    (timedelta(minutes=17), _provider_returns),
    (timedelta(minutes=19.5), _node_leaves),
    (timedelta(minutes=22.5), _node_returns),
)
