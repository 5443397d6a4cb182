"""Nodes as processes: started, stopped, killed, and asked to leave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path

from attrs import define

from tests.faults.jobs import LONG
from tests.faults.journal import Journal, read

_ROOT = Path(__file__).parents[2]
_STARTS_WITHIN = 30.0


@define(eq=False)
class NodeProcess:
    """One of them."""

    process: Process
    is_stopped: bool = False

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            self.process.send_signal(number)


class Cluster:
    """The nodes of one row. `folder` holds journal, events, ledger and logs."""

    def __init__(self, folder: Path, url: str, *, broken: str | None = None, keep: int = 100_000) -> None:
        self.folder = folder
        self.url = url
        self.nodes: list[NodeProcess] = []
        self.journal = Journal(folder / "journal")
        self.clock_file: Path | None = None
        self._broken = broken
        self._keep = keep

    def step_clock(self, seconds: float) -> None:
        """The store's clock is off by so much from now on, for everybody."""
        self.clock_file = self.folder / "clock"
        fresh = self.clock_file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self.clock_file)

    async def start(
        self,
        *,
        point: str | None = None,
        nth: int = 1,
        stops: bool = False,
        skew: float = 0.0,
        url: str | None = None,
        wait: bool = True,
    ) -> NodeProcess:
        """A node more; `point` is where it dies, or stops, by itself."""
        command = [sys.executable, "-m", "tests.faults.node", str(self.folder), url or self.url, f"--skew={skew}"]
        command.append(f"--keep={self._keep}")
        if self._broken is not None:
            command.append(f"--broken={self._broken}")
        if self.clock_file is not None:
            command.append(f"--steps={self.clock_file}")
        how = "stop" if stops else "die"
        armed = {"ROTA_FAULT_POINT": point, "ROTA_FAULT_NTH": str(nth), "ROTA_FAULT_HOW": how} if point else {}
        with (self.folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, cwd=_ROOT, env={**os.environ, **armed}, start_new_session=True
            )
        node = NodeProcess(process)
        self.nodes.append(node)
        if wait:
            await self._until_started(node)
        return node

    async def _until_started(self, node: NodeProcess) -> None:
        end = time.monotonic() + _STARTS_WITHIN
        while node.is_alive and time.monotonic() < end:
            if any(each.kind == "started" and each.pid == node.process.pid for each in read(self.folder / "journal")):
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"a node did not start: {(self.folder / 'log').read_text()[-500:]}")

    def long_bodies(self, younger_than: float) -> list[int]:
        """Processes in which a body longer than a lease has just begun, the latest first."""
        since = time.monotonic() - younger_than
        begun = [each for each in read(self.folder / "journal") if each.kind == "begin" and each.at > since]
        return [each.pid for each in reversed(begun) if each.data["job"] in LONG]

    @property
    def alive(self) -> list[NodeProcess]:
        return [node for node in self.nodes if node.is_alive]

    async def kill(self, node: NodeProcess) -> None:
        """kill -9, and a line in the journal once it is certainly dead."""
        node.signal(signal.SIGKILL)
        await node.process.wait()
        self.journal.say("killed", pid=node.process.pid)

    async def leave(self, node: NodeProcess, *, times: int = 1, between: float = 0.3) -> None:
        """SIGTERM, perhaps twice, and wait for the end."""
        for number in range(times):
            node.signal(signal.SIGTERM)
            if number + 1 < times:
                await asyncio.sleep(between)
        try:
            await asyncio.wait_for(node.process.wait(), 30)
        except TimeoutError:
            await self.kill(node)
            raise

    async def stop(self, node: NodeProcess, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        node.signal(signal.SIGSTOP)
        node.is_stopped = True
        await asyncio.sleep(seconds)
        node.signal(signal.SIGCONT)
        node.is_stopped = False

    def stopped_themselves(self) -> list[int]:
        """Processes that reached the point at which they stop, in that order."""
        return [each.pid for each in read(self.folder / "journal") if each.kind == "stopping"]

    async def wait_for_death(self, node: NodeProcess, seconds: float) -> bool:
        try:
            await asyncio.wait_for(node.process.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        for node in self.alive:
            node.signal(signal.SIGCONT)
            await self.kill(node)
