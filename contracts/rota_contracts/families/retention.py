"""HIST-2: what is forgotten, and what never is."""

from __future__ import annotations

from datetime import timedelta

from rota.model.definition import RetryPolicy
from rota.model.run import Retention, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import clause
from rota_contracts.declare import key, manual, script
from rota_contracts.families._reading import LONG_LEASE, runs_of, status_of
from rota_contracts.scene import Scene

ONE_TRY = RetryPolicy.single_attempt()
SHORT = timedelta(minutes=1)


async def _says(node: JobScheduler, number: str) -> bool:
    return any(number in check.detail for check in (await node.health()).checks)


class RetentionClauses:
    """HIST-2: finished runs go, everything else stays."""

    @clause("HIST-2", "by default a job keeps its newest hundred runs", uses=("virtual",))
    async def test_history_does_not_grow_without_bound(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(manual())
            triggered = [await node.trigger_once("job") for _ in range(130)]
            await scene.advance(hours=2)
            kept = [run.run_id for run in await runs_of(node)]
            assert kept == triggered[-len(kept) :]
            assert len(kept) <= 100

    @clause("HIST-2", "retention keeps the number of runs it was given, the newest ones", uses=("virtual",))
    async def test_retention_does_not_take_more_than_it_should(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(runs=5)) as node:
            await node.schedule(manual())
            await node.schedule(manual("quiet"))
            await node.trigger_once("quiet")
            triggered = [await node.trigger_once("job") for _ in range(12)]
            await scene.advance(hours=2)
            assert [run.run_id for run in await runs_of(node)] == triggered[-5:]
            assert len(await runs_of(node, "quiet")) == 1

    @clause("HIST-2", "runs older than the age given are forgotten, younger ones are not", uses=("virtual",))
    async def test_old_runs_are_not_kept(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(age=timedelta(hours=12))) as node:
            await node.schedule(manual())
            await node.trigger_once("job")
            await scene.advance(hours=11)
            assert len(await runs_of(node)) == 1
            young = await node.trigger_once("job")
            await scene.advance(hours=5)
            assert [run.run_id for run in await runs_of(node)] == [young]

    @clause("HIST-2", "unfinished runs are never forgotten, however many and however old", uses=("virtual",))
    async def test_retention_does_not_touch_unfinished_runs(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(runs=1, age=SHORT)) as node:
            await node.schedule(manual(handler="hold"))
            await node.schedule(manual("retries", handler="fail", retry=RetryPolicy.fixed(seconds=86_400)))
            triggered = [await node.trigger_once("job") for _ in range(4)]
            waits = await node.trigger_once("retries")
            await scene.advance(hours=5)
            assert [run.run_id for run in await runs_of(node)] == triggered
            assert (await scene.look(node, waits)).state is RunState.RETRYING
            await scene.release()
            await scene.advance(seconds=30)
            assert [each.run_id for each in scene.journal.of("job")] == triggered

    @clause("HIST-2", "dead letters are never forgotten by default, and can still be replayed", uses=("virtual",))
    async def test_retention_does_not_touch_dead_letters(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(runs=1, age=SHORT)) as node:
            await node.schedule(manual(handler="script", retry=ONE_TRY))
            letters = [await node.trigger_once("job", payload=script(f"fail:{number}")) for number in range(3)]
            for _ in range(4):
                await node.trigger_once("job", payload=script("ok"))
            await scene.advance(hours=5)
            found = {letter.run_id: letter.error or "" for letter in await node.dead_letters()}
            assert set(found) == set(letters)
            assert all(f"{number}" in found[letter] for number, letter in enumerate(letters))
            await node.replay(letters[1])
            await scene.settle()
            assert scene.journal.last("job").payload == script("fail:1")

    @clause("HIST-2", "dead letters have a retention of their own", uses=("virtual",))
    async def test_dead_letters_go_when_they_are_told_to(self, scene: Scene) -> None:
        retention = Retention(dead_letters=timedelta(hours=12))
        async with scene.open(lease=LONG_LEASE, retention=retention) as node:
            await node.schedule(manual(handler="fail", retry=ONE_TRY))
            await node.trigger_once("job")
            await scene.advance(hours=11)
            assert len(await node.dead_letters()) == 1
            await scene.advance(hours=5)
            assert await node.dead_letters() == []

    @clause("HIST-2", "dead letters are counted in the health report")
    async def test_dead_letters_do_not_go_unnoticed(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=ONE_TRY))
            for _ in range(7):
                await node.trigger_once("job")
            await scene.settle()
            await scene.eventually(lambda: _says(node, "7"))

    @clause("HIST-2", "the last times of a job outlive its runs", uses=("virtual",))
    async def test_retention_does_not_forget_the_last_times(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(runs=1, age=SHORT)) as node:
            await node.schedule(manual(handler="script", retry=ONE_TRY))
            for step in ("fail", "ok"):
                await node.trigger_once("job", payload=script(step))
                await scene.advance(seconds=20)
            before = await status_of(node)
            assert None not in (before.last_attempt_at, before.last_success_at, before.last_failure_at)
            for letter in await node.dead_letters():
                await node.discard(letter.run_id)
            await scene.advance(hours=5)
            assert await runs_of(node) == []
            after = await status_of(node)
            assert (after.last_attempt_at, after.last_success_at, after.last_failure_at) == (
                before.last_attempt_at, before.last_success_at, before.last_failure_at,
            )  # fmt: skip

    @clause("HIST-2", "a key outlives the run that took it", uses=("virtual",))
    async def test_retention_does_not_free_keys(self, scene: Scene) -> None:
        async with scene.open(lease=LONG_LEASE, retention=Retention(runs=1, age=SHORT)) as node:
            await node.schedule(manual())
            first = await node.trigger_once("job", idempotency_key=key("order-17"))
            await scene.advance(hours=5)
            await node.trigger_once("job")
            await scene.settle()
            assert await node.trigger_once("job", idempotency_key=key("order-17")) == first
            await scene.settle()
            assert scene.journal.count("job") == 2
