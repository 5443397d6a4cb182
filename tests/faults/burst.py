"""A burst of triggers against a cap on history, with kills in between (B88): all run, and the cap holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from rota import JobDefinition, Manual
from tests.faults.evidence import Evidence
from tests.faults.scene import Scene

KEEP = 300  # runs of a job; no other job has as many in a row
_COUNT = 900
_BATCH = 100  # more than the cap, at most
_SCOPE = "burst"
_RUNS_WITHIN = 60.0  # seconds


async def burst(scene: Scene) -> None:
    await scene.client.schedule(JobDefinition("burst", "burst", Manual(), scope_id=_SCOPE))
    for first in range(0, _COUNT, 300):
        labels = range(first, first + 300)
        await asyncio.gather(
            *[scene.client.trigger_once("burst", scope_id=_SCOPE, payload=str(label).encode()) for label in labels]
        )
        nodes = scene.cluster.alive  # all of them: the one that runs the burst is among them
        for node in nodes:
            await scene.cluster.kill(node)
        await asyncio.gather(*[scene.cluster.start() for _ in nodes])
        scene.injected += len(nodes)
    await _until_all_ran(scene)
    kept = await scene.client.get_run_history("burst", scope_id=_SCOPE, limit=1000)
    if len(kept) > KEEP + _BATCH:
        scene.wrong.append(f"S19: {len(kept)} runs are kept of a job that may have {KEEP}")


async def _until_all_ran(scene: Scene) -> None:
    end = time.monotonic() + _RUNS_WITHIN
    while time.monotonic() < end:
        status = await scene.client.status("burst", scope_id=_SCOPE)
        if status is not None and not status.queued and status.running is None:
            return
        await asyncio.sleep(0.5)
    scene.wrong.append(f"S9: a burst of {_COUNT} runs has not ended within {_RUNS_WITHIN:.0f} s")


def burst_ran(evidence: Evidence) -> Iterator[str]:
    ran = {entry.data["label"] for entry in evidence.journal if entry.kind == "burst"}
    if len(ran) != _COUNT:
        yield f"S1: {len(ran)} runs of a burst of {_COUNT} ever began"
