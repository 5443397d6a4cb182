"""What happens to the jobs from outside: somebody pauses one, the shop writes events, a provider comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from attrs import define, field

from rota import Event, HookedEventStore, InMemoryEventStore, JobNotifyEventStore, Scheduler, VirtualClock
from rota.demo.jobs import PaymentProvider, definitions, handlers
from rota.run import JobRun
from rota_backends.inprocess import InProcessBackend

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
    """The scheduler, its clock and everything the story touches. `told` is what was done by hand."""

    clock: VirtualClock = field(factory=lambda: VirtualClock(START))
    provider: PaymentProvider = field(factory=PaymentProvider)
    told: list[tuple[datetime, str]] = field(factory=list)
    events: JobNotifyEventStore = field(factory=lambda: JobNotifyEventStore(HookedEventStore(InMemoryEventStore())))
    scheduler: Scheduler = field(init=False)
    _done: int = 0

    def __attrs_post_init__(self) -> None:
        self.scheduler = Scheduler(
            InProcessBackend(clock=self.clock),
            handlers,
            events=self.events,
            services={VirtualClock: self.clock, PaymentProvider: self.provider},
            notifier=DeadLetters(self.tell),
            queues=QUEUES,
        )

    def tell(self, sentence: str) -> None:
        self.told.append((self.clock.now(), sentence))

    async def set(self) -> None:
        """Declare the jobs and let what is due at the first minute happen."""
        for definition in definitions():
            await self.scheduler.schedule(definition)
        await self.clock.advance()

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
    await stage.scheduler.pause("newsletter", reason="template under review")


async def _resume(stage: Stage) -> None:
    stage.tell("newsletter is resumed; what was due meanwhile is not made up")
    await stage.scheduler.resume("newsletter")


async def _provider_returns(stage: Stage) -> None:
    stage.provider.is_up = True
    for letter in await stage.scheduler.dead_letters():
        stage.tell(f"the provider is back: the dead letter of {letter.job_id} is replayed")
        await stage.scheduler.replay(letter.run_id)


Act = Callable[[Stage], Awaitable[None]]

ACTS: tuple[tuple[timedelta, Act], ...] = (
    (timedelta(minutes=0.5), _products_change),
    (timedelta(minutes=3.5), _pause),
    (timedelta(minutes=12), _resume),
    (timedelta(minutes=17), _provider_returns),
)
