"""Five hundred jobs on one second, each of which fails once: a thundering herd, and a storm of retries (B90, B62)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from statistics import mean, quantiles

from rota import Cron, JobDefinition, Precision, RetryPolicy
from tests.faults.evidence import Evidence, Validity
from tests.faults.scene import Scene

_COUNT = 500
_AHEAD = timedelta(seconds=15)  # enough to register them all
_RETRY = RetryPolicy(max_attempts=5, backoff=(timedelta(seconds=2),), jitter=0.5)
_PREFIX = "herd-"
_P99 = 5.0  # seconds


async def herd(scene: Scene) -> None:
    due = (await scene.backend.now() + _AHEAD).replace(microsecond=0)
    cron = Cron(f"{due.second} {due.minute} {due.hour} * * *")
    for first in range(0, _COUNT, 50):
        await asyncio.gather(*[_declare(scene, number, cron) for number in range(first, first + 50)])
    late = await scene.backend.now() - due
    if late > timedelta(0):
        scene.wrong.append(f"S0: registering {_COUNT} jobs took longer than {_AHEAD}")
    scene.injected = _COUNT
    await asyncio.sleep(max(0.0, -late.total_seconds()) + scene.seconds)


async def _declare(scene: Scene, number: int, cron: Cron) -> None:
    definition = JobDefinition(f"{_PREFIX}{number}", "once", cron, retry=_RETRY, precision=Precision.SECOND)
    await scene.client.schedule(definition)
    now = await scene.backend.now()
    scene.evidence.validities.append(Validity(definition, now, now + timedelta(hours=1)))


def herd_is_served(evidence: Evidence) -> Iterator[str]:
    """All started, p99 within bounds; their retries are spread over the band of the jitter."""
    runs = [run for key, run in evidence.all_runs() if key.job_id.startswith(_PREFIX)]
    waits = [
        (run.attempts[0].started_at - run.due).total_seconds() for run in runs if run.attempts and run.due is not None
    ]
    if len(waits) != _COUNT:
        yield f"S1: {len(waits)} of {_COUNT} jobs on one second started"
    elif (p99 := quantiles(waits, n=100)[98]) > _P99:
        yield f"S9: {_COUNT} jobs on one second, p99 of their starts is {p99:.1f} s"
    yield from _storm(_planned_waits(evidence))


def _planned_waits(evidence: Evidence) -> list[float]:
    found = []
    for event in evidence.told:
        if event.event_type == "JobFailed" and (event.subject or "").startswith(_PREFIX) and event.occurred_at:
            planned = json.loads(event.data)["next_attempt_at"]
            if planned is not None:
                found.append((datetime.fromisoformat(planned) - event.occurred_at).total_seconds())
    return found


def _storm(waits: list[float]) -> Iterator[str]:
    nominal = _RETRY.backoff[0].total_seconds()
    low, high = nominal * (1 - _RETRY.jitter), nominal * (1 + _RETRY.jitter)
    if len(waits) < _COUNT:
        yield f"S10: {len(waits)} of {_COUNT} failures were told with their next attempt"
    elif min(waits) < low or max(waits) > high:
        yield f"S13: retries wait {min(waits):.2f} to {max(waits):.2f} s, the band is {low} to {high} s"
    elif max(waits) - min(waits) < 0.8 * (high - low) or abs(mean(waits) - nominal) > 0.05 * nominal:
        yield f"S13: retries wait {min(waits):.2f} to {max(waits):.2f} s, {mean(waits):.2f} s on average: badly spread"
