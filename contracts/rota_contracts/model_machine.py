"""A Hypothesis state machine that drives the whole API, on several nodes, and compares every answer with the model.

It runs in a thread, because Hypothesis is synchronous; the scheduler stays on the clause's event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.errors import JobNotFound, RunNotFound
from rota.model.definition import IdempotencyKey, JobDefinition, RetryPolicy
from rota.model.run import JobRun, RunState
from rota.protocol import JobScheduler
from rota_contracts.declare import cron, event, manual, on_event
from rota_contracts.model import Model, ModelRun
from rota_contracts.model_driver import LEASE, ModelDriver, Seen
from rota_contracts.scene import Scene

T = TypeVar("T")

_A_RENEWAL = LEASE / 3 + timedelta(seconds=1)
_NODES = 2
_PLAIN, _HOLDING = ("plain", "other"), "holding"
_STEPS = (b"ok", b"fail", b"fail|ok", b"fail|fail|ok")
_KEYS = (None, IdempotencyKey("k1", timedelta(seconds=45)), IdempotencyKey("k2", timedelta(minutes=3)))
_DELAYS = (None, timedelta(0), timedelta(seconds=7), timedelta(seconds=60))
# The first one is still waiting when the next minute comes.
_RETRIES = (RetryPolicy.fixed(seconds=70, attempts=3), RetryPolicy.fixed(seconds=10), RetryPolicy.single_attempt())
_SETTINGS = settings(
    max_examples=60,
    stateful_step_count=25,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    phases=(Phase.generate,),  # shrinking would take minutes; a sequence is short as it is
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
)

_jobs = st.sampled_from((*_PLAIN, _HOLDING))
_nodes = st.integers(0, _NODES - 1)


class SchedulerMachine(RuleBasedStateMachine):
    """One example: a sequence of calls, each answered alike by scheduler and model."""

    driver: ModelDriver

    def __init__(self) -> None:
        super().__init__()
        self.scope = self.driver.new_scope()
        self.driver.begin_at_a_round_time()
        self.model = Model(self.driver.scene.now())
        self.seen: Seen | None = None

    # --- jobs ---

    @rule(
        job_id=_jobs,
        kind=st.sampled_from(("manual", "event", "every minute", "every other minute")),
        steps=st.sampled_from(_STEPS),
        key=st.sampled_from(_KEYS),
        retry=st.sampled_from(_RETRIES),
        node=_nodes,
    )
    def schedule(
        self, job_id: str, kind: str, steps: bytes, key: IdempotencyKey | None, retry: RetryPolicy, node: int
    ) -> None:
        definition = self._definition(
            job_id, kind, payload=steps, idempotency_key=key, retry=retry, scope_id=self.scope, handler="model"
        )
        real, expected = self._step(
            node, lambda each: each.schedule(definition), lambda: self.model.schedule(definition)
        )
        assert real == expected

    @initialize(retry=st.sampled_from(_RETRIES), node=_nodes)
    def start_with_something(self, retry: RetryPolicy, node: int) -> None:
        self.schedule("plain", "every minute", b"fail|ok", None, retry, node)
        self.schedule("other", "event", b"fail", None, RetryPolicy.single_attempt(), node)
        self.schedule(_HOLDING, "manual", b"hold", None, retry, node)
        self.notify(0, "OrderPlaced", node)

    @rule(job_id=_jobs, node=_nodes)
    def unschedule(self, job_id: str, node: int) -> None:
        real, expected = self._step(
            node, lambda each: each.unschedule(job_id, scope_id=self.scope), lambda: self.model.unschedule(job_id)
        )
        assert real == expected

    @rule(job_id=_jobs, node=_nodes)
    def pause(self, job_id: str, node: int) -> None:
        self._step(
            node,
            lambda each: each.pause(job_id, reason="why", scope_id=self.scope),
            lambda: self.model.pause(job_id, "why"),
        )

    @rule(job_id=_jobs, node=_nodes)
    def resume(self, job_id: str, node: int) -> None:
        self._step(node, lambda each: each.resume(job_id, scope_id=self.scope), lambda: self.model.resume(job_id))

    # --- runs ---

    @rule(
        job_id=_jobs,
        steps=st.sampled_from((None, *_STEPS)),
        delay=st.sampled_from(_DELAYS),
        key=st.sampled_from(_KEYS),
        node=_nodes,
    )
    def trigger(
        self, job_id: str, steps: bytes | None, delay: timedelta | None, key: IdempotencyKey | None, node: int
    ) -> None:
        payload = _held_back(steps) if job_id == _HOLDING and steps is not None else steps
        how: dict[str, Any] = {"payload": payload, "delay": delay, "idempotency_key": key, "scope_id": self.scope}
        real, expected = self._step(
            node,
            lambda each: each.trigger_once(job_id, **how),
            lambda: self.model.trigger(job_id, payload, delay, key),
        )
        if expected is not None:
            _same(expected, real)

    @rule(number=st.integers(0, 2), kind=st.sampled_from(("OrderPlaced", "OrderPlaced", "Other")), node=_nodes)
    def notify(self, number: int, kind: str, node: int) -> None:
        told = event(kind, scope_id=self.scope, event_id=f"e{number}")
        real, expected = self._step(node, lambda each: each.notify(told), lambda: self.model.notify(told))
        assert len(set(real or ())) == len(expected)

    @rule(node=_nodes)
    def release(self, node: int) -> None:
        self._step(node, lambda _: self.driver.release(self.scope), lambda: self.model.release(_HOLDING))

    @rule(job_id=_jobs, position=st.integers(0, 5), node=_nodes)
    def cancel(self, job_id: str, position: int, node: int) -> None:
        run = self._run(job_id, position)
        # In these seconds only the cancelled attempt may end, so that it does not matter when exactly it does.
        if run is None or (run.state is RunState.RUNNING and self.model.now.second > 45):
            return
        passes = _A_RENEWAL if run.state is RunState.RUNNING else timedelta(0)
        real, expected = self._step(
            node, lambda each: each.cancel(_id(run), scope_id=self.scope), lambda: self.model.cancel(run), passes
        )
        assert real == expected

    @rule(position=st.integers(0, 1), times=st.integers(1, 2), node=_nodes)
    def replay(self, position: int, times: int, node: int) -> None:
        run = self._letter(position)
        for _ in range(times):
            real, expected = self._step(
                node, lambda each: each.replay(_id(run), scope_id=self.scope), lambda: self.model.replay(run)
            )
            if expected is not None:
                _same(expected, real)

    @rule(position=st.integers(0, 1), node=_nodes)
    def discard(self, position: int, node: int) -> None:
        run = self._letter(position)
        if run.replayed_as is None:
            real, expected = self._step(
                node, lambda each: each.discard(_id(run), scope_id=self.scope), lambda: self.model.discard(run)
            )
            assert real == expected

    # --- time and nodes ---

    @rule(seconds=st.sampled_from((1, 5, 10, 29, 45)))
    def advance(self, seconds: int) -> None:
        self._advance(timedelta(seconds=seconds))

    @rule(minutes=st.sampled_from((1, 3)))
    def advance_past_ticks(self, minutes: int) -> None:
        self._advance(timedelta(minutes=minutes))

    @precondition(lambda self: not self._is_anything_running())
    @rule(node=_nodes)
    def a_node_dies_and_another_comes(self, node: int) -> None:
        self.driver.call(self.driver.scene.crash(self.driver.nodes[node]))
        self.driver.nodes[node] = self.driver.call(self.driver.open_node())
        self._advance(timedelta(0))

    # --- comparison ---

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        seen = self.seen
        if seen is None:
            return
        self._compare_jobs(seen)
        for job_id in (*_PLAIN, _HOLDING):
            self._compare_runs(job_id, seen.histories[job_id])
        self._compare_letters(seen)

    def _compare_jobs(self, seen: Seen) -> None:
        assert seen.schedules == [self.model.jobs[job_id].definition for job_id in sorted(self.model.jobs)]
        for job_id, status in seen.statuses.items():
            job = self.model.jobs.get(job_id)
            assert (status is None) == (job is None)
            if status is not None and job is not None:
                assert status.paused == job.paused
                assert job.paused is not None or status.next_due == job.next_due

    def _compare_runs(self, job_id: str, seen: list[JobRun]) -> None:
        expected = self.model.runs.get(job_id, [])[::-1]
        assert [_seen(run) for run in seen] == [_expected(run) for run in expected]
        for mine, theirs in zip(expected, seen, strict=True):
            _same(mine, theirs.run_id)
        assert self.driver.scene.journal.count(job_id, self.scope) == sum(run.attempt for run in expected)

    def _compare_letters(self, seen: Seen) -> None:
        runs = [run for each in self.model.runs.values() for run in each]
        replayed = {run.run_id for run in runs if run.replayed_as is not None}
        assert {run.run_id for run in seen.letters} - replayed == {run.run_id for run in runs if run.is_letter}

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self._compare_events()
        for job_id in (*_PLAIN, _HOLDING):
            self.driver.call(self.driver.nodes[0].unschedule(job_id, scope_id=self.scope))
        self.driver.call(self.driver.release(self.scope))
        self.driver.call(self.driver.scene.settle())

    def _compare_events(self) -> None:
        # A node that died may have been the one that told the events: another takes over within its lease.
        self._advance(timedelta(seconds=40))
        for job_id in self.model.jobs:
            self.driver.call(self.driver.nodes[0].pause(job_id, reason="the end", scope_id=self.scope))
        for job_id, expected in self.model.events.items():
            told = self.driver.call(self.driver.told(job_id, len(expected), self.scope))
            assert told == expected

    # --- inside ---

    def _definition(self, job_id: str, kind: str, **more: Any) -> JobDefinition:
        if job_id == _HOLDING:
            more["payload"] = _held_back(more["payload"])
            return on_event(job_id, **more) if kind == "event" else manual(job_id, **more)
        if kind == "manual":
            return manual(job_id, **more)
        if kind == "event":
            return on_event(job_id, **more)
        return cron(job_id, "* * * * *" if kind == "every minute" else "*/2 * * * *", **more)

    def _step(
        self,
        node: int,
        work: Callable[[JobScheduler], Coroutine[Any, Any, T]],
        expected: Callable[[], Any],
        passes: timedelta = timedelta(0),
    ) -> tuple[T | None, Any]:
        """One call to both, then time for both; what the model refuses the scheduler refuses with the same error."""
        wanted, problem = None, None
        try:
            wanted = expected()
        except (JobNotFound, RunNotFound) as error:
            problem = error
        answer, refusal, self.seen = self.driver.call(
            self.driver.step(work(self.driver.nodes[node]), passes, self.scope, (*_PLAIN, _HOLDING))
        )
        self.model.advance(passes)
        assert type(refusal) is type(problem)
        return answer, wanted

    def _advance(self, delta: timedelta) -> None:
        self._step(0, lambda _: asyncio.sleep(0), lambda: None, delta)

    def _run(self, job_id: str, position: int) -> ModelRun | None:
        runs = self.model.runs.get(job_id, [])
        return runs[-1 - position % len(runs)] if runs else None

    def _letter(self, position: int) -> ModelRun:
        """A dead run, decided upon or not; while nothing has died yet, any run: it must be refused."""
        runs = [run for job_id in sorted(self.model.runs) for run in self.model.runs[job_id]]
        found = [run for run in runs if run.state is RunState.DEAD] or runs
        return found[position % len(found)]

    def _is_anything_running(self) -> bool:
        return any(run.state is RunState.RUNNING for runs in self.model.runs.values() for run in runs)


def _id(run: ModelRun) -> UUID:
    assert run.run_id is not None
    return run.run_id


def _held_back(steps: bytes) -> bytes:
    return b"ok" if steps == b"ok" else b"hold"


def _same(mine: ModelRun, run_id: UUID | None) -> None:
    if mine.run_id is None:
        mine.run_id = run_id
    assert mine.run_id == run_id


def _seen(run: JobRun) -> tuple[object, ...]:
    next_at = run.next_attempt_at if run.state is RunState.RETRYING else None
    return run.state, run.cause, run.attempt, run.due, run.event_id, run.replay_of, next_at


def _expected(run: ModelRun) -> tuple[object, ...]:
    replay_of = None if run.replay_of is None else run.replay_of.run_id
    next_at = run.ready_at if run.state is RunState.RETRYING else None
    return run.state, run.cause, run.attempt, run.due, run.event_id, replay_of, next_at


async def compare_with_the_model(scene: Scene) -> None:
    """Drive scheduler and model alike; raises at the first difference, with the calls that led to it."""
    async with AsyncExitStack() as stack:
        driver = ModelDriver(scene, asyncio.get_running_loop(), stack)
        driver.nodes = [await driver.open_node() for _ in range(_NODES)]
        machine = type("SchedulerMachine", (SchedulerMachine,), {"driver": driver})
        await asyncio.to_thread(run_state_machine_as_test, machine, settings=_SETTINGS)
