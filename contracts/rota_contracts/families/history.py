"""HIST-1: what can be listed, in which order, and page by page."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota_contracts.clause import clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.families._reading import dues
from rota_contracts.scene import Scene

ONE_TRY = RetryPolicy.single_attempt()


class HistoryClauses:
    """HIST-1: runs, newest first."""

    @clause("HIST-1", "runs of one instant are listed newest first, by the order in which they were triggered")
    async def test_history_does_not_mix_up_runs_of_one_instant(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            triggered = [await node.trigger_once("job") for _ in range(12)]
            await scene.settle()
            assert [run.run_id for run in await node.get_run_history("job")] == triggered[::-1]

    @clause("HIST-1", "the order is that of the triggers, not that of starts or ends", uses=("virtual",))
    async def test_history_is_not_ordered_by_starts(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            late = await node.trigger_once("job", delay=timedelta(seconds=30))
            await scene.advance(seconds=5)
            early = await node.trigger_once("job")
            await scene.advance(seconds=5)
            assert [run.run_id for run in await node.get_run_history("job")] == [early, late]
            await scene.advance(seconds=40)
            assert [run.run_id for run in await node.get_run_history("job")] == [early, late]

    @clause("HIST-1", "history is bounded: the newest runs, as many as asked for")
    async def test_history_does_not_give_more_than_asked_for(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            triggered = [await node.trigger_once("job") for _ in range(60)]
            await scene.settle()
            newest = triggered[::-1]
            assert [run.run_id for run in await node.get_run_history("job", limit=7)] == newest[:7]
            assert [run.run_id for run in await node.get_run_history("job")] == newest[:50]

    @clause("HIST-1", "pages of none, or of more than a thousand, are refused")
    async def test_a_page_is_not_empty_or_endless(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            for limit in (0, -1, 1001):
                with pytest.raises(ValueError, match="limit"):
                    await node.get_run_history("job", limit=limit)
                with pytest.raises(ValueError, match="limit"):
                    await node.list_schedules(limit=limit)
                with pytest.raises(ValueError, match="limit"):
                    await node.dead_letters(limit=limit)

    @clause("HIST-1", "unfinished runs are part of the history")
    async def test_history_does_not_leave_out_unfinished_runs(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            await node.trigger_once("job", payload=script("ok"))
            await node.trigger_once("job", payload=script("fail"))
            await node.trigger_once("job", payload=script("ok"))
            await scene.settle()
            states = [run.state for run in await node.get_run_history("job")]
            assert states == [RunState.QUEUED, RunState.RETRYING, RunState.SUCCEEDED]

    @clause("HIST-1", "history holds runs only: a skipped tick is none", uses=("virtual",))
    async def test_a_skipped_tick_is_not_a_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold"))
            await scene.advance(minutes=3)
            assert await dues(node) == [scene.at("12:00")]

    @clause("HIST-1", "history is of one job in one scope")
    async def test_history_does_not_show_another_jobs_runs(self, scene: Scene) -> None:
        async with scene.open() as node:
            for definition in (manual(), manual("job2"), manual(scope_id="other")):
                await node.schedule(definition)
            mine = await node.trigger_once("job")
            await node.trigger_once("job2")
            await node.trigger_once("job", scope_id="other")
            await scene.settle()
            assert [run.run_id for run in await node.get_run_history("job")] == [mine]


NAMES = ["0", "B", "Z", "_", "a", "a b", "a-", "aa", "ab", "e\u0301", "z", "\u00e9", "\ufb01", "\uff5e", "\U0001f600"]


class ListingClauses:
    """HIST-1: jobs and dead letters, page by page."""

    @clause("HIST-1", "jobs are listed in code-point order of their ids")
    async def test_jobs_are_not_listed_in_another_order(self, scene: Scene) -> None:
        async with scene.open() as node:
            for name in NAMES[::2] + NAMES[1::2]:
                await node.schedule(manual(name))
            assert [job.job_id for job in await node.list_schedules()] == sorted(NAMES)

    @clause("HIST-1", "pages of jobs go on after the last one, without loss or repeat")
    async def test_pages_of_jobs_do_not_lose_or_repeat_any(self, scene: Scene) -> None:
        async with scene.open() as node:
            for name in NAMES:
                await node.schedule(manual(name))
                await node.schedule(manual(name, scope_id="other"))
            found: list[str] = []
            while page := await node.list_schedules(limit=4, after=found[-1] if found else None):
                found += [job.job_id for job in page]
                assert len(page) <= 4
                assert len(found) <= len(NAMES)
            assert found == sorted(NAMES)

    @clause("HIST-1", "a page may begin after a job that is gone")
    async def test_a_page_after_a_removed_job_does_not_start_over(self, scene: Scene) -> None:
        async with scene.open() as node:
            for name in ("a", "b", "c", "d"):
                await node.schedule(manual(name))
            await node.unschedule("b")
            assert [job.job_id for job in await node.list_schedules(after="b")] == ["c", "d"]

    @clause("HIST-1", "pages of dead letters of one instant go on without loss or repeat")
    async def test_pages_of_dead_letters_do_not_lose_or_repeat_any(self, scene: Scene) -> None:
        async with scene.open(concurrency=4) as node:
            triggered: set[UUID] = set()
            for number in range(5):
                await node.schedule(manual(f"job-{number}", handler="fail", retry=ONE_TRY))
                triggered |= {await node.trigger_once(f"job-{number}") for _ in range(4)}
            await scene.settle()
            found: list[UUID] = []
            while page := await node.dead_letters(limit=7, after=found[-1] if found else None):
                found += [letter.run_id for letter in page]
                assert len(page) <= 7
                assert len(found) <= 20
            assert len(found) == 20
            assert set(found) == triggered

    @clause("HIST-1", "dead letters are listed for one scope only")
    async def test_dead_letters_of_another_scope_are_not_listed(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope_id in ("default", "other"):
                await node.schedule(manual(handler="fail", retry=ONE_TRY, scope_id=scope_id))
            mine = await node.trigger_once("job")
            theirs = await node.trigger_once("job", scope_id="other")
            await scene.settle()
            assert [letter.run_id for letter in await node.dead_letters()] == [mine]
            assert [letter.run_id for letter in await node.dead_letters("other")] == [theirs]
