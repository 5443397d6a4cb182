"""RETRY-3, RETRY-4 and RETRY-6: what counts as a failure, what ends a run at once, and that others do not suffer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from attrs import frozen

from rota.handlers import HandlerRegistry
from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, JobRun, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual, script
from rota_contracts.families._ways import ended, outcomes, succeeds, told
from rota_contracts.scene import Scene

_DEATH = ["JobTriggered", "JobFailed", "JobDeadLettered"]
_MAX_ERROR = 8 * 1024


class Unspeakable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@frozen
class Order:
    """What the handler of a typed payload wants."""

    amount: int


async def _fails_and_is_retried(scene: Scene, handler: str, payload: bytes = b"") -> JobRun:
    """The first attempt fails and uses an attempt, JobFailed is told, and a second one follows."""
    async with scene.open() as node:
        await node.schedule(manual(handler=handler, payload=payload))
        run_id = await node.trigger_once("job")
        await scene.eventually(lambda: scene.journal.count("job") == 2, within=timedelta(seconds=15))
        run = await ended(scene, node, run_id)
        assert run.attempts[0].outcome is AttemptOutcome.FAILED
        assert [each.attempt for each in scene.journal.of("job")][:2] == [1, 2]
        types = await told(scene, 4)
        assert types[1:4] == ["JobTriggered", "JobFailed", "JobTriggered"]
        return run


class FailureClauses:
    """RETRY-3: failures of every kind use an attempt and are retried."""

    @clause("RETRY-3", "a returned Failed is a failure with its reason")
    async def test_a_returned_failure_is_not_a_success(self, scene: Scene) -> None:
        run = await _fails_and_is_retried(scene, "script", script("fail:no paper", "ok"))
        assert "no paper" in (run.attempts[0].error or "")

    @clause("RETRY-3", "an exception is a failure with its text")
    async def test_an_exception_is_not_lost(self, scene: Scene) -> None:
        run = await _fails_and_is_retried(scene, "script", script("raise:no ink", "ok"))
        assert "no ink" in (run.attempts[0].error or "")

    @clause("RETRY-3", "an exception in a thread is a failure too")
    async def test_an_exception_in_a_thread_is_not_lost(self, scene: Scene) -> None:
        run = await _fails_and_is_retried(scene, "sync-fail")
        assert "boom" in (run.attempts[0].error or "")

    @clause("RETRY-3", "Retry uses an attempt and tells JobFailed")
    async def test_a_retry_is_not_free(self, scene: Scene) -> None:
        await _fails_and_is_retried(scene, "script", script("retry:1", "ok"))

    @clause("RETRY-3", "Retry in the last attempt dead-letters")
    async def test_retry_does_not_go_beyond_the_last_attempt(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("retry:1")))
            run_id = await node.trigger_once("job")
            await scene.advance(minutes=1)
            assert (await scene.look(node, run_id)).state is RunState.DEAD
            assert scene.journal.count("job") == 3

    @clause("RETRY-3", "SystemExit is a failure and ends no node")
    async def test_system_exit_does_not_end_the_node(self, scene: Scene) -> None:
        await _fails_and_is_retried(scene, "script", script("exit", "ok"))

    @clause("RETRY-3", "a CancelledError without a request to cancel is a failure")
    async def test_an_unasked_cancellation_is_not_a_cancelled_run(self, scene: Scene) -> None:
        @scene.handler("gives-up")
        async def gives_up(ctx: Any, payload: bytes) -> None:
            if ctx.attempt == 1:
                raise asyncio.CancelledError

        run = await _fails_and_is_retried(scene, "gives-up")
        assert run.state is RunState.SUCCEEDED

    @clause("RETRY-3", "an error whose str() fails is recorded all the same")
    async def test_an_error_without_text_does_not_break_the_error_path(self, scene: Scene) -> None:
        @scene.handler("unspeakable")
        async def unspeakable(ctx: Any, payload: bytes) -> None:
            raise Unspeakable

        run = await _fails_and_is_retried(scene, "unspeakable")
        assert run.state is RunState.DEAD
        assert run.error

    @clause("RETRY-3", "an error with a NUL or a lone surrogate is recorded as text that can be stored")
    async def test_an_odd_error_text_does_not_break_the_error_path(self, scene: Scene) -> None:
        @scene.handler("odd")
        async def odd(ctx: Any, payload: bytes) -> None:
            raise ValueError("before\x00after\ud800")

        run = await _fails_and_is_retried(scene, "odd")
        assert run.error
        assert "before" in run.error
        assert "\x00" not in run.error
        run.error.encode("utf-8")

    @clause("RETRY-3", "stored error text is at most 8 KiB")
    async def test_an_endless_error_is_not_stored_whole(self, scene: Scene) -> None:
        @scene.handler("verbose")
        async def verbose(ctx: Any, payload: bytes) -> None:
            raise ValueError("é" * 20_000)

        run = await _fails_and_is_retried(scene, "verbose")
        assert run.error
        assert 1000 < len(run.error.encode()) <= _MAX_ERROR

    @clause("RETRY-3", "any other value than a result counts as success")
    async def test_an_unknown_value_is_not_a_failure(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            run = await scene.run(node, "job", payload=script("value:hello"))
            assert run.state is RunState.SUCCEEDED
            assert run.attempt == 1

    @clause("RETRY-3", "when no attempts remain the run is dead-lettered, told as JobFailed and JobDeadLettered")
    async def test_the_last_failure_does_not_vanish(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=RetryPolicy.single_attempt()))
            run = await scene.run(node, "job")
            assert [letter.run_id for letter in await node.dead_letters()] == [run.run_id]
            assert run.state is RunState.DEAD
            assert "boom" in (run.error or "")
            assert (await told(scene, 4))[1:] == _DEATH


class AtOnceClauses:
    """RETRY-3, RETRY-4: what dead-letters at once."""

    @clause("RETRY-3", "Failed(permanent=True) dead-letters at once")
    async def test_a_permanent_failure_is_not_retried(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("permanent:never", "ok")))
            run = await scene.run(node, "job")
            await scene.advance(minutes=5)
            assert run.state is RunState.DEAD
            assert "never" in (run.error or "")
            assert scene.journal.count("job") == 1
            assert (await told(scene, 4))[1:] == _DEATH

    @clause("RETRY-3", "an undecodable payload dead-letters at once and the handler is not called")
    async def test_an_undecodable_payload_is_not_retried(self, scene: Scene) -> None:
        seen: list[Order] = []
        async with scene.open(handlers=_typed(seen)) as node:
            await node.schedule(manual(handler="typed"))
            run = await scene.run(node, "job", payload=b'{"amount": "many"}')
            await scene.advance(minutes=5)
            run = await scene.look(node, run.run_id)
            assert (run.state, outcomes(run), seen) == (RunState.DEAD, [AttemptOutcome.FAILED], [])
            assert [letter.run_id for letter in await node.dead_letters()] == [run.run_id]

    @clause("RETRY-3", "an undecodable payload holds up none of the runs behind it")
    async def test_an_undecodable_payload_does_not_stop_the_queue(self, scene: Scene) -> None:
        seen: list[Order] = []
        async with scene.open(handlers=_typed(seen), concurrency=1) as node:
            await node.schedule(manual(handler="typed"))
            await node.trigger_once("job", payload=b"\xff\xfe no JSON")
            for number in range(10):
                await node.trigger_once("job", payload=b'{"amount": %d}' % number)
            await scene.settle()
            assert seen == [Order(number) for number in range(10)]

    @clause("RETRY-3", "a failure later than dead_letter_after from the first start ends the run", uses=("virtual",))
    async def test_attempts_do_not_go_on_after_dead_letter_after(self, scene: Scene) -> None:
        policy = RetryPolicy(None, (timedelta(seconds=10),), 0.0, dead_letter_after=timedelta(seconds=25))
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=policy))
            run_id = await node.trigger_once("job")
            await scene.advance(minutes=5)
            assert scene.journal.count("job") == 4, "at 0, 10, 20 and 30 s"
            assert (await scene.look(node, run_id)).state is RunState.DEAD

    @clause("RETRY-3", "a failure at exactly dead_letter_after is not later than it", uses=("virtual",))
    async def test_a_failure_at_dead_letter_after_does_not_end_the_run(self, scene: Scene) -> None:
        policy = RetryPolicy(None, (timedelta(seconds=10),), 0.0, dead_letter_after=timedelta(seconds=10))
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"2", retry=policy))
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=30)
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED

    @clause(
        "RETRY-3", "dead_letter_after counts from the first attempt's start, not from the trigger", uses=("virtual",)
    )
    async def test_time_in_the_queue_does_not_count_for_dead_letter_after(self, scene: Scene) -> None:
        policy = RetryPolicy(3, (timedelta(seconds=10),), 0.0, dead_letter_after=timedelta(seconds=15))
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", retry=policy))
            run_id = await node.trigger_once("job", delay=timedelta(minutes=1))
            await scene.advance(seconds=75)
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED

    @clause("RETRY-4", "a run whose handler no live node has fails at once: one attempt, no retry, a dead letter")
    async def test_a_missing_handler_is_not_retried(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="nobody-has-this"))
            run_id = await node.trigger_once("job")
            run = await ended(scene, node, run_id, within=5)
            await scene.advance(minutes=5)
            assert (run.state, run.attempt, outcomes(run)) == (RunState.DEAD, 1, [AttemptOutcome.FAILED])
            assert "nobody-has-this" in f"{run.reason} {run.error}", "the reason names the handler"
            assert (await told(scene, 4))[1:] == _DEATH
            assert [letter.run_id for letter in await node.dead_letters()] == [run_id]

    @clause("RETRY-4", "a node leaves runs alone whose handler only another node has", level=Level.NODES)
    async def test_a_node_does_not_take_runs_it_has_no_handler_for(self, scene: Scene) -> None:
        async with scene.open(only=("ok",)) as ignorant, scene.open(only=("flaky",)):
            await ignorant.schedule(manual(handler="flaky"))
            ids = [await ignorant.trigger_once("job", payload=b"0") for _ in range(5)]
            await scene.advance(seconds=3)
            runs = [await scene.look(ignorant, run_id) for run_id in ids]
            assert [(run.state, run.attempt) for run in runs] == [(RunState.SUCCEEDED, 1)] * 5

    @clause("RETRY-4", "a handler whose only node is busy is not missing", level=Level.NODES)
    async def test_a_busy_node_does_not_make_its_handlers_missing(self, scene: Scene) -> None:
        async with scene.open(only=("ok",)) as ignorant, scene.open(only=("hold",), concurrency=1):
            for job_id in ("one", "two"):
                await ignorant.schedule(manual(job_id, "hold"))
                await ignorant.trigger_once(job_id)
            await scene.advance(minutes=2)
            assert len(scene.journal.running()) == 1
            assert await ignorant.dead_letters() == []
            await scene.release()
            await scene.eventually(lambda: len(scene.journal) == 2)


class OthersClauses:
    """RETRY-6: failing jobs never delay others."""

    @clause("RETRY-6", "a run waiting for a retry takes no slot")
    async def test_a_waiting_retry_does_not_take_a_slot(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            for number in range(3):
                await node.schedule(manual(f"fails-{number}", "fail", retry=RetryPolicy.fixed(3600)))
                await node.trigger_once(f"fails-{number}")
            await node.schedule(manual("fine"))
            run = await scene.run(node, "fine")
            assert run.state is RunState.SUCCEEDED

    @clause("RETRY-6", "failing jobs do not delay the ticks of others", uses=("virtual",))
    async def test_failing_jobs_do_not_delay_others(self, scene: Scene) -> None:
        async with scene.open(concurrency=2) as node:
            for number in range(20):
                await node.schedule(manual(f"fails-{number}", "fail", retry=RetryPolicy.fixed(1, None)))
                await node.trigger_once(f"fails-{number}")
            await node.schedule(manual("fine"))
            await scene.advance(seconds=5)
            before = scene.now()
            await succeeds(scene, node, "fine")
            assert scene.journal.starts("fine") == [before]

    @clause("RETRY-6", "a run without handler holds up no other job")
    async def test_a_missing_handler_does_not_delay_others(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("nobody", "nobody-has-this"))
            await node.schedule(manual("fine"))
            for _ in range(3):
                await node.trigger_once("nobody")
            await succeeds(scene, node, "fine")


def _typed(seen: list[Order]) -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.register("typed")
    async def typed(ctx: Any, payload: Order) -> None:
        seen.append(payload)

    return registry
