"""RETRY-5: dead letters, replay, discard, and telling the admins."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from rota.errors import JobNotFound, RunNotFound
from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, Cause, JobRun, Retention, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import event, manual, on_event, script
from rota_contracts.families._ways import ended, outcomes, payloads
from rota_contracts.scene import Scene

_ONCE = RetryPolicy.single_attempt()
_FAILS = script("raise:no")


async def _letter(scene: Scene, node: JobScheduler, payload: bytes = _FAILS) -> JobRun:
    """A dead letter of a job whose own payload would succeed."""
    await node.schedule(manual(handler="script", payload=script("ok"), retry=_ONCE))
    run = await scene.run(node, "job", payload=payload)
    assert run.state is RunState.DEAD
    return run


async def _letters(node: JobScheduler) -> list[UUID]:
    return [letter.run_id for letter in await node.dead_letters()]


class LetterClauses:
    """RETRY-5: what a dead letter keeps, and what can be done with it."""

    @clause("RETRY-5", "a dead letter keeps error, attempts and cause")
    async def test_a_letter_does_not_lose_its_story(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="script", payload=script("raise:one", "raise:two"), retry=_twice()))
            await node.notify(event(event_id="the event"))
            await scene.advance(seconds=5)
            [letter] = await node.dead_letters()
            assert (letter.cause, letter.event_id, letter.state) == (Cause.EVENT, "the event", RunState.DEAD)
            assert outcomes(letter) == [AttemptOutcome.FAILED] * 2
            assert "one" in (letter.attempts[0].error or "")
            assert "two" in (letter.error or "")

    @clause("RETRY-5", "a letter keeps the payload of its run, and replay gives it to the handler")
    async def test_replay_does_not_use_another_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            await node.replay(letter.run_id)
            await scene.settle()
            assert payloads(scene) == [_FAILS, _FAILS]

    @clause("RETRY-5", "replay queues a new run with cause REPLAY that names its letter and counts from 1")
    async def test_replay_does_not_go_on_with_the_old_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            again = await ended(scene, node, await node.replay(letter.run_id))
            assert again.run_id != letter.run_id
            assert again.replay_of == letter.run_id
            assert (again.cause, again.attempt, len(again.attempts)) == (Cause.REPLAY, 1, 1)
            assert await scene.look(node, letter.run_id) == letter, "the letter itself stays as it was"

    @clause("RETRY-5", "a replayed run goes to the tail of the lane")
    async def test_replay_does_not_jump_the_queue(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            await node.trigger_once("job", payload=script("hold"))
            await node.trigger_once("job", payload=script("ok:2"))
            await node.replay(letter.run_id)
            await node.trigger_once("job", payload=script("ok:4"))
            await scene.settle()
            await scene.release()
            assert payloads(scene) == [_FAILS, script("hold"), script("ok:2"), _FAILS, script("ok:4")]

    @clause("RETRY-5", "a replayed letter is out of the list")
    async def test_a_replayed_letter_is_not_listed_any_more(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node, script("raise:no", "ok"))
            assert await _letters(node) == [letter.run_id]
            again = await node.replay(letter.run_id)
            assert letter.run_id not in await _letters(node)  # the replay itself may have failed by now
            await ended(scene, node, again)
            assert await _letters(node) == [again], "the replay failed too and is a letter of its own"

    @clause("RETRY-5", "a second replay returns the same run, also when that has ended")
    async def test_a_second_replay_does_not_start_a_second_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            first = await node.replay(letter.run_id)
            assert await node.replay(letter.run_id) == first
            await scene.settle()
            assert await node.replay(letter.run_id) == first
            await scene.settle()
            assert scene.journal.count("job") == 2

    @clause("RETRY-5", "nor when retention has forgotten the letter and its replay", uses=("virtual",))
    async def test_retention_does_not_forget_that_a_letter_was_replayed(self, scene: Scene) -> None:
        async with scene.open(retention=Retention(runs=1, age=timedelta(hours=1))) as node:
            letter = await _letter(scene, node, script("raise:no"))
            first = await node.replay(letter.run_id)
            await scene.settle()
            await node.discard(first)
            for _ in range(3):
                await scene.run(node, "job")
            await scene.advance(days=6)
            assert await node.replay(letter.run_id) == first
            with pytest.raises(RunNotFound):
                await node.replay(letter.run_id, scope_id="other")
            await scene.settle()
            assert payloads(scene) == [_FAILS, _FAILS, *[script("ok")] * 3]

    @clause("RETRY-5", "replays at the same time make one run")
    async def test_replays_at_once_do_not_make_two_runs(self, scene: Scene) -> None:
        async with scene.open() as node, scene.open() as other:
            letter = await _letter(scene, node)
            calls = (each.replay(letter.run_id) for each in (node, other, node, other))
            assert len(set(await asyncio.gather(*calls))) == 1
            await scene.settle()
            assert scene.journal.count("job") == 2

    @clause("RETRY-5", "replay needs the job: without it nothing happens and the letter stays")
    async def test_replay_does_not_revive_a_removed_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            await node.unschedule("job")
            with pytest.raises((JobNotFound, RunNotFound)):
                await node.replay(letter.run_id)
            await scene.settle()
            assert await _letters(node) == [letter.run_id]
            assert scene.journal.count("job") == 1

    @clause("RETRY-5", "only a dead letter of the scope can be replayed")
    async def test_only_letters_are_replayed(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            fine = await scene.run(node, "job", payload=script("ok"))
            for run_id, scope_id in ((fine.run_id, "default"), (uuid4(), "default"), (letter.run_id, "other")):
                with pytest.raises(RunNotFound):
                    await node.replay(run_id, scope_id=scope_id)
            await scene.settle()
            assert scene.journal.count("job") == 2

    @clause("RETRY-5", "discard takes the letter out of the list; the run stays in history as DEAD")
    async def test_discard_does_not_remove_history(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            assert await node.discard(letter.run_id) is True
            assert await _letters(node) == []
            assert [run.state for run in await node.get_run_history("job")] == [RunState.DEAD]
            assert await node.discard(letter.run_id) is False

    @clause("RETRY-5", "discard touches nothing but dead letters of its scope")
    async def test_discard_does_not_touch_anything_else(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter = await _letter(scene, node)
            fine = await scene.run(node, "job", payload=script("ok"))
            assert await node.discard(letter.run_id, scope_id="other") is False
            assert await node.discard(fine.run_id) is False
            assert await node.discard(uuid4()) is False
            assert await _letters(node) == [letter.run_id]
            assert await node.dead_letters("other") == []


def _twice() -> RetryPolicy:
    return RetryPolicy.fixed(1, 2)


class _Admins:
    """A notifier that hears of letters, and fails as often as it is told to."""

    def __init__(self, node: list[JobScheduler], failures: int = 0) -> None:
        self.heard: list[UUID] = []
        self.found: list[RunState | None] = []
        self._node = node
        self._failures = failures

    async def dead_letter(self, run: JobRun) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError("nobody there")
        stored = await self._node[0].get_run(run.run_id)
        self.heard.append(run.run_id)
        self.found.append(None if stored is None else stored.state)


class NotifierClauses:
    """RETRY-5: scope admins are told."""

    @clause("RETRY-5", "the admins are told of a letter after it is stored, and of nothing else", uses=("scheduler",))
    async def test_admins_do_not_miss_a_letter(self, scene: Scene) -> None:
        await _are_told(scene, 0)

    @clause("RETRY-5", "admins who could not be told are told again", uses=("scheduler",))
    async def test_admins_are_not_told_only_once_in_vain(self, scene: Scene) -> None:
        await _are_told(scene, 3)

    @clause("RETRY-5", "the admins are told of letters whether there is an event store or not", uses=("scheduler",))
    async def test_admins_do_not_depend_on_events(self, scene: Scene) -> None:
        await _are_told(scene, 0, events=None)

    @clause(
        "RETRY-5",
        "a node without a notifier of its own takes no letter from those that have one",
        level=Level.NODES,
        uses=("scheduler",),
    )
    async def test_a_node_without_a_notifier_does_not_swallow_letters(self, scene: Scene) -> None:
        nodes: list[JobScheduler] = []
        admins, letters = _Admins(nodes), set[UUID]()
        async with scene.open() as working, scene.open(events=None):
            nodes.append(working)
            await scene.settle()  # they have looked for letters before anybody wanted to be told
            async with scene.open(concurrency=0, events=None, notifier=admins):
                letters.add((await _letter(scene, working)).run_id)
                await scene.advance(minutes=1)
                assert set(admins.heard) == letters
            letters.add((await scene.run(working, "job", payload=_FAILS)).run_id)
            await scene.advance(minutes=1)  # it waits for one who has a notifier
            async with scene.open(concurrency=0, events=None, notifier=admins):
                await scene.advance(minutes=1)
                assert set(admins.heard) == letters

    @clause(
        "RETRY-5",
        "letters that the admins were not yet told of survive a restart of the store",
        level=Level.DURABLE,
        uses=("scheduler", "virtual"),
    )
    async def test_a_restart_does_not_lose_untold_letters(self, scene: Scene) -> None:
        nodes: list[JobScheduler] = []
        async with scene.open(notifier=_Admins(nodes, 1000)) as node:
            letter = await _letter(scene, node)
        await scene.reopen()
        admins = _Admins(nodes)
        async with scene.open(notifier=admins) as node:
            nodes.append(node)
            await scene.advance(minutes=1)
            assert set(admins.heard) == {letter.run_id}


async def _are_told(scene: Scene, failures: int, **options: Any) -> None:
    nodes: list[JobScheduler] = []
    admins = _Admins(nodes, failures)
    async with scene.open(notifier=admins, **options) as node:
        nodes.append(node)
        letter = await _letter(scene, node)
        await scene.run(node, "job", payload=script("ok"))
        await scene.advance(minutes=2)
        assert set(admins.heard) == {letter.run_id}
        assert set(admins.found) == {RunState.DEAD}
