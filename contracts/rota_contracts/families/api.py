"""API: the life of a node. Methods work only inside its `async with`, and a node is entered once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from rota.model.run import RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import event, manual
from rota_contracts.families._look import status_of, ticking
from rota_contracts.scene import Scene

_CALLS: dict[str, Callable[[JobScheduler], Awaitable[Any]]] = {
    "schedule": lambda node: node.schedule(manual("late")),
    "unschedule": lambda node: node.unschedule("job"),
    "trigger_once": lambda node: node.trigger_once("job"),
    "get_schedule": lambda node: node.get_schedule("job"),
    "list_schedules": lambda node: node.list_schedules(),
    "get_run_history": lambda node: node.get_run_history("job"),
    "get_run": lambda node: node.get_run(uuid4()),
    "status": lambda node: node.status("job"),
    "notify": lambda node: node.notify(event()),
    "pause": lambda node: node.pause("job", reason="late"),
    "resume": lambda node: node.resume("job"),
    "cancel": lambda node: node.cancel(uuid4()),
    "dead_letters": lambda node: node.dead_letters(),
    "replay": lambda node: node.replay(uuid4()),
    "discard": lambda node: node.discard(uuid4()),
}


async def _raises(call: Awaitable[Any]) -> bool:
    """Whether the call is refused; the contract does not say with which error."""
    try:
        await call
    except Exception:
        return True
    return False


class NodeLifeClauses:
    """Section 1."""

    @clause("API", "no method of a node works after it was left, and none has an effect", level=Level.NODES)
    async def test_no_method_works_outside(self, scene: Scene) -> None:
        async with scene.open() as outer:
            await outer.schedule(manual())
            async with scene.open() as node:
                pass
            for name, call in _CALLS.items():
                assert await _raises(call(node)), f"{name} worked on a node that was left"
            await scene.settle()
            assert [job.job_id for job in await outer.list_schedules()] == ["job"]
            assert (await status_of(outer)).paused is None
            assert await outer.get_run_history("job") == []

    @clause("API", "entering a node twice is refused, and does not disturb it")
    async def test_a_node_is_not_entered_twice(self, scene: Scene) -> None:
        async with scene.open() as node:
            assert await _raises(node.__aenter__())
            await node.schedule(manual())
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED
            assert scene.journal.count("job") == 1

    @clause("API", "a node that was left starts nothing any more", level=Level.NODES, uses=("virtual",))
    async def test_a_node_that_was_left_starts_nothing(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            async with scene.open() as node:
                await node.schedule(ticking())
            await client.trigger_once("job", delay=timedelta(seconds=10))
            begun = scene.journal.count()
            await scene.advance(minutes=3)
            assert scene.journal.count() == begun

    @clause("API", "a client (concurrency 0) triggers and works nothing")
    async def test_a_client_works_nothing(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual())
            await client.schedule(manual("unknown", "no-such-handler"))
            runs = [await scene.run(client, job_id) for job_id in ("job", "unknown")]
            await scene.advance(seconds=5)
            for run in runs:
                assert (await scene.look(client, run.run_id)).state is RunState.QUEUED
            assert scene.journal.count() == 0

    @clause("API", "a run that a client triggers is run by a node that works", level=Level.NODES)
    async def test_a_clients_trigger_does_not_wait_for_the_client(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open():
            await client.schedule(manual())
            assert (await scene.run(client, "job")).state is RunState.SUCCEEDED

    @clause("API", "several nodes with one handler share the work and repeat none of it", level=Level.NODES)
    async def test_nodes_do_not_repeat_each_others_work(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open(), scene.open():
            for number in range(5):
                await one.schedule(manual(f"job-{number}"))
            ids = [await one.trigger_once(f"job-{number % 5}") for number in range(20)]
            await scene.settle()
            assert sorted(each.run_id for each in scene.journal) == sorted(ids)
