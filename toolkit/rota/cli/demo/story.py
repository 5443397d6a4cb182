"""The acts of the story: an operator pauses a job, the shop writes events, a deploy restarts the node."""

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
QUEUES = {"default": 3, "pulse": 1}  # so few that runs have to wait at the full hour


class DeadLetters:
    """The notifier of the demo: prints to the screen."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    async def dead_letter(self, run: JobRun) -> None:
        self._tell(f"admins notified: {run.job_id} is a dead letter after {run.attempt} attempts")


@define(eq=False)
class Stage:
    """A node, and a client on the same store that reads and acts. `acts` are sentences about the acts so far."""

    url: str
    clock: VirtualClock = field(factory=lambda: VirtualClock(START))
    provider: PaymentProvider = field(factory=PaymentProvider)
    acts: list[tuple[datetime, str]] = field(factory=list)
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
        self.acts.append((self.clock.now(), sentence))

    async def __aenter__(self) -> Stage:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.stop_node()
        finally:
            await self.client.__aexit__(None, None, None)

    async def set(self) -> None:
        """Schedule the jobs and run what is due in the first minute."""
        if (await self.client.admin.overview()).jobs:  # the demo's clock would be wrong for these jobs
            raise ScheduleError("backend", "this store already contains jobs; the demo needs an empty one")
        lasting = "outlive every process" if self.is_durable else "end with this process"
        self.tell(f"a node starts on {self.url.partition(':')[0]}: jobs, runs and decisions {lasting}")
        await self.start_node()
        for definition in definitions():
            await self.client.schedule(definition)
        await self.clock.advance()

    async def start_node(self) -> None:
        """Start a node as a new process would: its whole state is in the store."""
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
        """Leave; unfinished runs are handed back."""
        await self._node.aclose()

    async def advance_to(self, instant: datetime) -> None:
        """Advance the clock to `instant`, and perform each act of the story at its time."""
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
    stage.tell("newsletter is resumed; occurrences that were due meanwhile are not run")
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
    stage.tell("a new node starts: it runs the handed-back run, and makes one run for all missed ticks of a job")
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
