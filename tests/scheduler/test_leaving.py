"""A node that leaves while claims, settlements or hand-backs are under way loses and repeats nothing.

Rules: LEASE-5, HIST-3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from attrs import evolve

from rota import (
    Event,
    HandlerRegistry,
    InMemoryEventStore,
    JobContext,
    LeaseLost,
    RunState,
    Scheduler,
    VirtualClock,
)
from rota.backend.messages import (
    Claimed,
    ClaimRequest,
    JobKey,
    LeaseRef,
    NodeInfo,
    Registered,
    Registration,
    Renewal,
    Settlement,
)
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota.node import loop as node_loop
from rota.node import shutdown
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, registry, until


class _SlowEvents(InMemoryEventStore):
    async def write(self, *events: Event) -> int:
        await asyncio.sleep(0.02)  # sleep: the latency of a slow store
        return await super().write(*events)


async def test_events_of_what_was_drained_are_written_before_the_scheduler_is_closed() -> None:
    events, started, release = _SlowEvents(), asyncio.Event(), asyncio.Event()

    async def waits(ctx: JobContext) -> None:
        started.set()
        await release.wait()

    async with Scheduler(InProcessBackend(), registry(waits=waits), events=events) as scheduler:
        await scheduler.schedule(manual("waits"))
        await scheduler.trigger_once("waits")
        await started.wait()
        asyncio.get_running_loop().call_later(0.05, release.set)
    written = [event.event_type for _, event in await events.read()]
    assert written == ["JobRegistered", "JobTriggered", "JobSucceeded"]


class _HangingEvents(InMemoryEventStore):
    async def write(self, *events: Event) -> int:
        await asyncio.Event().wait()
        return 0


async def test_a_hanging_event_store_does_not_keep_a_node_from_leaving() -> None:
    async with asyncio.timeout(PATIENCE):
        async with Scheduler(InProcessBackend(), HandlerRegistry(), events=_HangingEvents()) as scheduler:
            await scheduler.schedule(manual("never"))


class _Stubborn(InMemoryEventStore):
    """Swallows its cancellation, and answers as if nothing had been; or goes on waiting."""

    def __init__(self, answers: bool) -> None:
        super().__init__()
        self.is_read = asyncio.Event()
        self.lets_go = asyncio.Event()
        self._answers = answers

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        while not self.lets_go.is_set():
            with suppress(asyncio.CancelledError):
                self.is_read.set()
                await self.lets_go.wait()
            if self._answers:
                break
        return []


@pytest.mark.parametrize("answers", [True, False])
async def test_an_event_store_that_swallows_its_cancellation_does_not_keep_a_node_from_leaving(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_loop, "_PARTING", 0.1)
    before, events = asyncio.all_tasks(), _Stubborn(answers)
    scheduler = await Scheduler(InProcessBackend(), HandlerRegistry(), events=events).__aenter__()
    await events.is_read.wait()
    leaving = asyncio.create_task(scheduler.__aexit__(None, None, None))
    await asyncio.wait({leaving}, timeout=PATIENCE)
    has_left = leaving.done()
    events.lets_go.set()
    await until(lambda: asyncio.all_tasks() == before)
    assert has_left


async def test_nothing_goes_on_when_leaving_itself_is_cancelled() -> None:
    started = asyncio.Event()

    async def long(ctx: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    async def live() -> None:
        async with Scheduler(InProcessBackend(), registry(long=long)) as scheduler:
            await scheduler.schedule(manual("long"))
            await scheduler.trigger_once("long")
            await started.wait()

    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await live()
    await until(lambda: asyncio.all_tasks() == before)


async def test_everything_ends_when_leaving_is_cancelled_twice() -> None:
    started, lets_go = asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: JobContext) -> None:
        started.set()
        while not lets_go.is_set():
            with suppress(asyncio.CancelledError):
                await lets_go.wait()

    scheduler = Scheduler(InProcessBackend(), registry(stubborn=stubborn), drain_timeout=None)

    async def live() -> None:
        async with scheduler:
            await scheduler.schedule(manual("stubborn"))
            await scheduler.trigger_once("stubborn")
            await started.wait()

    before, living = asyncio.all_tasks(), asyncio.create_task(live())
    await started.wait()
    node = scheduler._open().node
    await until(lambda: node.is_leaving)
    living.cancel()
    await until(lambda: not node.loop.is_alive)  # it is waiting for the body
    living.cancel()
    await asyncio.wait({living})
    lets_go.set()
    await until(lambda: asyncio.all_tasks() == before)
    async with scheduler:
        assert await scheduler.get_schedule("stubborn") is not None


async def test_a_body_that_a_node_left_behind_cannot_extend_its_lease() -> None:
    started, has_left, said = asyncio.Event(), asyncio.Event(), list[str]()

    async def stubborn(ctx: JobContext) -> None:
        started.set()
        while not has_left.is_set():
            with suppress(asyncio.CancelledError):
                await has_left.wait()
        try:
            await ctx.extend_lease(timedelta(hours=1))
        except LeaseLost as error:
            said.append(str(error))

    backend = InProcessBackend()
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(
            backend, registry(stubborn=stubborn), drain_timeout=ms(0), cancel_grace=ms(0)
        ) as scheduler:
            await scheduler.schedule(manual("stubborn"))
            await scheduler.trigger_once("stubborn")
            await started.wait()
        has_left.set()
        await until(lambda: bool(said))
        assert "was abandoned" in said[0]
        assert await client.admin.nodes() == ()


class _AwayForExtensions(InProcessBackend):
    """Is away for a while from those who ask for a long lease, and has patience with them."""

    patience = timedelta(minutes=1)
    is_away = True
    asked = 0

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        if any(each.lease == timedelta(hours=1) for each in leases):
            self.asked += 1
            if self.is_away:
                raise StoreUnavailable("away")
        return await super().renew(node, leases)


async def test_an_extension_under_way_when_its_node_leaves_is_not_asked_for_again() -> None:
    backend, said = _AwayForExtensions(), list[str]()

    def extends(ctx: JobContext) -> None:
        try:
            _ = ctx.extend_lease(timedelta(hours=1))
        except LeaseLost as error:
            said.append(str(error))

    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(backend, registry(extends=extends), drain_timeout=ms(0), cancel_grace=ms(0)) as scheduler:
            await scheduler.schedule(manual("extends"))
            await scheduler.trigger_once("extends")
            await until(lambda: backend.asked > 1)
        backend.is_away, asked = False, backend.asked
        await until(lambda: bool(said) or backend.asked > asked)
        assert await client.admin.nodes() == ()
        assert "was abandoned" in said[0]


class _SlowToPart(InProcessBackend):
    """Takes a while to hear that a node leaves, and a while to close: like any store behind a network."""

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await asyncio.sleep(0.05)  # sleep: the latency of a slow store
        await super().hand_back(leases, leaving=leaving)

    async def close(self) -> None:
        await asyncio.sleep(0.05)  # sleep: the latency of a slow store
        await super().close()


async def test_a_virtual_clock_waits_for_the_last_word_of_a_leaving_node() -> None:
    clock = VirtualClock()
    scheduler = await Scheduler(_SlowToPart(clock=clock), HandlerRegistry()).__aenter__()
    leaving = asyncio.create_task(scheduler.__aexit__(None, None, None))
    await clock.advance(timedelta(seconds=3))
    assert leaving.done(), "it needed no time, and time has passed"


class _SlowToGreet(InProcessBackend):
    """Knows a node at once, and does not answer it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        await super().renew(node, leases)
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_node_that_was_cancelled_while_it_entered_is_not_taken_for_alive() -> None:
    backend = _SlowToGreet()
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        entering = asyncio.create_task(Scheduler(backend, HandlerRegistry()).__aenter__())
        await backend.is_asked.wait()
        entering.cancel()
        await asyncio.wait({entering})
        assert entering.cancelled()
        assert await client.admin.nodes() == ()


class _SlowToRegister(InProcessBackend):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.is_asked, self.answers = asyncio.Event(), asyncio.Event()

    async def register(self, new: Registration) -> Registered:
        registered = await super().register(new)
        self.is_asked.set()
        await self.answers.wait()
        return registered


async def test_who_hears_from_the_store_when_the_scheduler_has_left_does_not_keep_a_virtual_clock() -> None:
    clock = VirtualClock()
    backend = _SlowToRegister(clock)
    async with Scheduler(backend, HandlerRegistry(), events=InMemoryEventStore()) as scheduler:
        scheduling = asyncio.create_task(scheduler.schedule(manual("job")))
        await backend.is_asked.wait()
    backend.answers.set()
    await scheduling
    await clock.advance(timedelta(seconds=1))


class _SlowClaims(InProcessBackend):
    """Claims, and answers a while later: like any store behind a network."""

    answers_after = 0.1
    hands_back_after = 0.0
    claims = answered = 0

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        self.claims += len(claimed.claims)
        await asyncio.sleep(self.answers_after)  # sleep: the latency of a slow store
        self.answered += len(claimed.claims)
        return claimed

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await asyncio.sleep(self.hands_back_after)  # sleep: the latency of a slow store
        await super().hand_back(leases, leaving=leaving)


@pytest.mark.parametrize(("answers_after", "hands_back_after"), [(0.1, 0.0), (2.0, 0.0), (2.0, 0.5)])
async def test_a_run_whose_claim_was_under_way_is_handed_back_and_not_left_to_its_lease(
    answers_after: float, hands_back_after: float
) -> None:
    starts: list[str] = []

    async def starts_late(ctx: JobContext) -> None:
        starts.append(ctx.job_id)
        await asyncio.sleep(60)  # sleep: a body that is cancelled

    backend = _SlowClaims()
    backend.answers_after, backend.hands_back_after = answers_after, hands_back_after
    async with Scheduler(backend, registry(starts_late=starts_late)) as scheduler:
        await scheduler.schedule(manual("starts_late"))
        run_id = await scheduler.trigger_once("starts_late")
        await until(lambda: backend.claims > 0)
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        run = await client.get_run(run_id)
        assert run is not None
        assert (run.state, run.attempts, starts) == (RunState.QUEUED, (), [])


@pytest.mark.parametrize("hands_back_after", [0.0, 0.5])
async def test_a_claim_answered_while_a_body_is_drained_is_handed_back_and_keeps_nobody_waiting(
    hands_back_after: float,
) -> None:
    backend, started = _SlowClaims(), asyncio.Event()

    async def drained(ctx: JobContext) -> None:
        started.set()
        await until(lambda: backend.answered == 2)

    async def starts_late(ctx: JobContext) -> None: ...

    handlers = registry(drained=drained, starts_late=starts_late)
    async with asyncio.timeout(PATIENCE):
        async with Scheduler(backend, handlers, drain_timeout=None) as scheduler:
            for job_id in ("drained", "starts_late"):
                await scheduler.schedule(manual(job_id))
            await scheduler.trigger_once("drained")
            await started.wait()
            backend.answers_after = 1.5  # longer than a node waits for it before it drains
            backend.hands_back_after = hands_back_after
            run_id = await scheduler.trigger_once("starts_late")
            await until(lambda: backend.claims == 2)
            node = scheduler._open().node
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        run = await client.get_run(run_id)
        assert run is not None
        assert (run.state, run.attempts) == (RunState.QUEUED, ())
        assert node.capacity.running == 0


class _SlowToRescue(InProcessBackend):
    """The claim that brings the late run is answered when told to, and tells of a lost one, too; that one's settlement
    takes its time."""

    has_claimed = False

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.settles = asyncio.Event(), asyncio.Event()

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        for claim in claimed.claims:
            if claim.key.job_id == "starts_late":
                claimed.expired = [evolve(claim, key=JobKey("default", "lost"))]
                self.has_claimed = True
                await self.answers.wait()
        return claimed

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        if any(each.only_if_expired for each in batch):
            await self.settles.wait()
        return await super().settle(batch, then, keep=keep)


async def test_a_late_run_is_not_given_up_while_its_claim_rescues_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_CLAIM_PATIENCE", 0.0)
    backend, started, ends = _SlowToRescue(), asyncio.Event(), asyncio.Event()

    async def drained(ctx: JobContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()

    handlers = registry(drained=drained, starts_late=drained)
    scheduler = await Scheduler(backend, handlers, drain_timeout=None, cancel_grace=ms(0)).__aenter__()
    for job_id in ("drained", "starts_late"):
        await scheduler.schedule(manual(job_id))
    await scheduler.trigger_once("drained")
    await started.wait()
    run_id, node = await scheduler.trigger_once("starts_late"), scheduler._open().node
    await until(lambda: backend.has_claimed)
    leaves = asyncio.create_task(scheduler.__aexit__(None, None, None))
    await until(lambda: node.is_leaving)
    backend.answers.set()
    await until(lambda: len(node._ready) == 1)
    scheduler._life.hurry.set()
    await ends.wait()
    asyncio.get_running_loop().call_later(0.2, backend.settles.set)
    await leaves
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        run = await client.get_run(run_id)
        assert run is not None
        assert (run.state, run.attempts) == (RunState.QUEUED, ())


class _HandsNothingBack(_SlowClaims):
    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        if leases:
            raise RuntimeError("not of the store's errors")
        await super().hand_back(leases, leaving=leaving)


async def test_a_body_is_drained_and_the_node_leaves_though_nothing_can_be_handed_back() -> None:
    backend, started, ends = _HandsNothingBack(), asyncio.Event(), list[str]()

    async def drained(ctx: JobContext) -> None:
        started.set()
        await until(lambda: backend.answered == 2)
        ends.append(ctx.job_id)

    async with asyncio.timeout(PATIENCE):
        async with Scheduler(backend, registry(drained=drained), drain_timeout=None) as scheduler:
            for job_id in ("drained", "unstarted"):
                await scheduler.schedule(manual(job_id, "drained"))
            await scheduler.trigger_once("drained")
            await started.wait()
            await scheduler.trigger_once("unstarted")
            await until(lambda: backend.claims == 2)
    assert ends == ["drained"]


class _LosesAnAnswer(InProcessBackend):
    """Claims, and is away before it has answered; then asked for what it gave it has its hiccups."""

    is_away = has_claimed = False
    hiccups: Sequence[Exception] = ()

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._check()
        claimed = await super().claim(request)
        if any(claim.key.job_id == "starts_late" for claim in claimed.claims):
            self.is_away = self.has_claimed = True
            raise OutcomeUnknown("no answer")
        return claimed

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        self._check()
        return await super().settle(batch, then, keep=keep)

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        renewal = await super().renew(node, leases)
        if self.has_claimed and self.hiccups:
            hiccup, *self.hiccups = self.hiccups
            raise hiccup
        return renewal

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


@pytest.mark.parametrize(
    ("hiccups", "state", "attempts"),
    [
        ([], RunState.QUEUED, 0),
        ([OutcomeUnknown("no answer")], RunState.QUEUED, 0),
        ([RuntimeError("not of the store's errors")] * 2, RunState.RUNNING, 1),
    ],
)
async def test_a_run_whose_claim_was_never_answered_is_handed_back_by_a_node_that_leaves(
    hiccups: list[Exception], state: RunState, attempts: int
) -> None:
    backend, started, release = _LosesAnAnswer(), asyncio.Event(), asyncio.Event()
    backend.hiccups = hiccups

    async def drained(ctx: JobContext) -> None:
        started.set()
        await release.wait()

    async def starts_late(ctx: JobContext) -> None: ...

    scheduler = Scheduler(backend, registry(drained=drained, starts_late=starts_late))
    await scheduler.__aenter__()
    for job_id in ("drained", "starts_late"):
        await scheduler.schedule(manual(job_id))
    drained_id = await scheduler.trigger_once("drained")
    await started.wait()
    run_id = await scheduler.trigger_once("starts_late")
    await until(lambda: backend.has_claimed)
    leaving = asyncio.create_task(scheduler.__aexit__(None, None, None))
    node = scheduler._open().node
    await until(lambda: node.is_leaving)
    backend.is_away = False
    release.set()
    await leaving
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        runs = [await client.get_run(each) for each in (drained_id, run_id)]
        assert [run and (run.state, len(run.attempts)) for run in runs] == [(RunState.SUCCEEDED, 1), (state, attempts)]


class _BackSoon(InProcessBackend):
    """Away for the next so many calls that end something, whichever node asks."""

    patience = timedelta(seconds=PATIENCE)
    away = 0

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        self._check()
        return await super().settle(batch, then, keep=keep)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        self._check()
        await super().hand_back(leases, leaving=leaving)

    def _check(self) -> None:
        self.away -= 1
        if self.away >= 0:
            raise StoreUnavailable("away")


@pytest.mark.parametrize(("drain", "state"), [(PATIENCE, RunState.SUCCEEDED), (0, RunState.QUEUED)])
async def test_a_store_that_is_back_soon_is_told_how_a_drained_body_ended(drain: float, state: RunState) -> None:
    backend, started, release = _BackSoon(), asyncio.Event(), asyncio.Event()

    async def drained(ctx: JobContext) -> None:
        started.set()
        await release.wait()

    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        scheduler = Scheduler(backend, registry(drained=drained), drain_timeout=timedelta(seconds=drain))
        async with scheduler:
            await scheduler.schedule(manual("drained"))
            run_id = await scheduler.trigger_once("drained")
            await started.wait()
            backend.away = 12
            if drain:
                asyncio.get_running_loop().call_later(0.05, release.set)
        run = await client.get_run(run_id)
        assert run is not None
        assert run.state is state


class _AnswersWithAnError(_SlowClaims):
    """Claims, and says after a while that nobody knows."""

    loses = False

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        if self.loses and claimed.claims:
            raise OutcomeUnknown("no answer")
        return claimed


async def test_a_claim_that_fails_while_its_node_leaves_is_handed_back_and_a_body_given_up_is_not() -> None:
    backend, started, lets_go = _AnswersWithAnError(), asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: JobContext) -> None:
        started.set()
        while not lets_go.is_set():
            with suppress(asyncio.CancelledError):
                await lets_go.wait()

    handlers = registry(stubborn=stubborn, starts_late=stubborn)
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(backend, handlers, drain_timeout=ms(0), cancel_grace=ms(0)) as scheduler:
            for job_id in ("stubborn", "starts_late"):
                await scheduler.schedule(manual(job_id))
            given_up = await scheduler.trigger_once("stubborn")
            await started.wait()
            backend.loses, backend.answers_after = True, 2.0  # after the node has given up its bodies
            claimed = await scheduler.trigger_once("starts_late")
            await until(lambda: backend.claims == 2)
        lets_go.set()
        runs = [await client.get_run(run_id) for run_id in (given_up, claimed)]
        assert [run and run.state for run in runs] == [RunState.RUNNING, RunState.QUEUED]


async def test_a_body_that_ended_when_asked_to_is_handed_back_however_long_the_store_takes() -> None:
    backend, started = _SlowClaims(), asyncio.Event()
    backend.hands_back_after = 0.5

    async def drained(ctx: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(backend, registry(drained=drained), drain_timeout=ms(0), cancel_grace=ms(0)) as scheduler:
            await scheduler.schedule(manual("drained"))
            run_id = await scheduler.trigger_once("drained")
            await started.wait()
        run = await client.get_run(run_id)
        assert run is not None
        assert (run.state, run.attempts) == (RunState.QUEUED, ())


@pytest.mark.parametrize("turns", range(10))
async def test_a_body_that_ends_just_before_it_would_be_given_up_is_handed_back(turns: int) -> None:
    backend, started = _SlowClaims(), asyncio.Event()
    backend.hands_back_after = 0.2

    async def tidies_up(ctx: JobContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(turns):
                await asyncio.sleep(0)

    handlers = registry(tidies_up=tidies_up)
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(backend, handlers, drain_timeout=ms(0), cancel_grace=ms(0)) as scheduler:
            await scheduler.schedule(manual("tidies_up"))
            run_id = await scheduler.trigger_once("tidies_up")
            await started.wait()
            node = scheduler._open().node
        run = await client.get_run(run_id)
        is_given_up = node.holdings.has_left_some_to_leases
        assert run is not None
        assert run.state is (RunState.RUNNING if is_given_up else RunState.QUEUED)


async def test_a_run_triggered_while_a_claim_is_under_way_does_not_wait_for_the_next_poll() -> None:
    async def fine(ctx: JobContext) -> None: ...

    backend = _SlowClaims()
    async with Scheduler(backend, registry(fine=fine)) as scheduler:
        await scheduler.schedule(manual("first", "fine"))
        await scheduler.schedule(manual("second", "fine"))
        node = scheduler._open().node
        node.loop._poll = timedelta(hours=1)  # only being woken helps
        await until(lambda: not node.exchange.is_claiming)
        for _ in range(3):
            await scheduler.trigger_once("first")
            await until(lambda: node.exchange.is_claiming)
            second = await scheduler.trigger_once("second")
            await scheduler.wait(second, timedelta(seconds=10))
