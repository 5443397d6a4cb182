"""Nodes in other processes by themselves: what is said arrives, and nobody is left behind.

No rule: it is about the machinery of the pack.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota_contracts.processes import Elsewhere, NodeProcess, elsewhere
from tests.contracts.toy_nodes import broken, toy
from tests.patience import PATIENCE

_LEASE = timedelta(seconds=7)


def _is_there(node: NodeProcess) -> bool:
    try:
        os.kill(node.pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_calls_and_options_arrive_whatever_is_printed() -> None:
    async with elsewhere(toy) as there:
        (node,) = await there.nodes(1, lease=_LEASE)
        what, options = await node.call("told", "é")
        assert (what, options["lease"]) == ("é", _LEASE)
        await node.leave()


async def test_a_call_that_fails_over_there_fails_here() -> None:
    async with elsewhere(toy) as there:
        (node,) = await there.nodes(1)
        with pytest.raises(AssertionError, match="not today"):
            await node.call("fails")
        assert (await node.call("told", "still here"))[0] == "still here"


async def test_a_process_that_dies_answers_nobody() -> None:
    async with elsewhere(toy) as there:
        (node,) = await there.nodes(1)
        with pytest.raises(AssertionError, match="the process ended"):
            await node.call("dies")


async def test_a_node_that_cannot_be_opened_says_why() -> None:
    async with elsewhere(broken) as there:
        with pytest.raises(AssertionError, match="the store is on fire"):
            await there.nodes(1)


async def test_the_clock_of_a_process_can_be_wrong() -> None:
    async with elsewhere(toy) as there:
        slow, fast = await there.started(timedelta(hours=-1), timedelta(hours=1))
        await slow.open()
        await fast.open()
        now = datetime.now(UTC)
        assert timedelta(hours=-1) <= await slow.call("time") - now < timedelta(0)
        assert timedelta(hours=1) <= await fast.call("time") - now < timedelta(hours=2)


async def test_a_clause_that_fails_leaves_no_process() -> None:
    nodes: list[NodeProcess] = []

    async def clause() -> None:
        async with elsewhere(toy) as there:
            nodes.extend(await there.nodes(2))
            nodes[1].signal(signal.SIGSTOP)
            raise OSError("the clause failed")

    with pytest.raises(OSError, match="the clause failed"):
        await clause()
    assert [_is_there(node) for node in nodes] == [False, False]


async def test_a_process_whose_clause_is_gone_ends() -> None:
    async with elsewhere(toy) as there:
        (node,) = await there.nodes(1)
        process: Any = node._process
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 3


async def test_calls_of_handlers_that_are_still_in_a_pipe_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, read = asyncio.Event(), NodeProcess._next_line

    async def delayed(self: NodeProcess, pipe: asyncio.StreamReader) -> bytes:
        line = await read(self, pipe)
        await passes.wait()
        return line

    async with elsewhere(toy) as there:
        nodes = await there.nodes(2)
        monkeypatch.setattr(NodeProcess, "_next_line", delayed)
        for node in nodes:
            await node.call("told", "the line after this one is delayed")
        running = [asyncio.create_task(node.call("runs", "job")) for node in nodes]
        asked = asyncio.create_task(there.all_calls())
        await asyncio.sleep(0)
        assert (there.of(), asked.done()) == ([], False)
        passes.set()
        assert len(await asked) == 2
        await asyncio.gather(*running)


async def test_a_wait_for_what_does_not_happen_ends() -> None:
    async with elsewhere(toy) as there:
        with pytest.raises(AssertionError, match="did not become true"):
            await _never(there)


async def _never(there: Elsewhere) -> None:
    await there.until(lambda: False, within=timedelta(milliseconds=50))
