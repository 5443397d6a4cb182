"""A signal while a scheduler closes does not kill the process. Tried in a process of its own. Rules: LEASE-5."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE

_NODE = """
import asyncio, os, signal

from rota import HandlerRegistry, Scheduler
from rota_backends.inprocess import InProcessBackend


class SlowToClose(InProcessBackend):
    async def close(self):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        await super().close()


async def main():
    async with Scheduler(SlowToClose(), HandlerRegistry()) as scheduler:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await scheduler.run_forever()
    print("after the block")


asyncio.run(main())
"""


def test_a_second_signal_while_the_store_is_closed_does_not_kill_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", _NODE], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout) == (0, "after the block\n")
