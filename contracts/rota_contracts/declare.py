"""Short ways to declare the jobs of a clause."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.cron import Cron
from rota.model.definition import IdempotencyKey, JobDefinition, Manual, OnEvent, RetryPolicy
from rota.model.event import Event

ONE_DAY = timedelta(days=1)

# Exact waits: no jitter, so that instants can be compared.
STEADY = RetryPolicy.fixed(seconds=10, attempts=3)


def cron(job_id: str = "job", expression: str = "* * * * *", handler: str = "ok", **more: Any) -> JobDefinition:
    """A cron job; `tz`, `misfire`, `grace` and `overlap` go to the trigger, everything else to the definition."""
    of_trigger = {name: more.pop(name) for name in ("tz", "misfire", "grace", "overlap") if name in more}
    return _definition(job_id, handler, Cron(expression, **of_trigger), more)


def manual(job_id: str = "job", handler: str = "ok", **more: Any) -> JobDefinition:
    """A job that runs only when triggered."""
    return _definition(job_id, handler, Manual(), more)


def on_event(
    job_id: str = "job",
    event_type: str = "OrderPlaced",
    handler: str = "ok",
    *,
    module: str = "shop",
    subject: str | None = None,
    **more: Any,
) -> JobDefinition:
    """A job that runs for each event `module`/`event_type`."""
    return _definition(job_id, handler, OnEvent(module, event_type, subject), more)


def event(event_type: str = "OrderPlaced", *, module: str = "shop", **more: Any) -> Event:
    """An event that `on_event()` matches; give `event_id` to write the same one twice."""
    return Event(module, event_type, **more)


def key(name: str = "key", ttl: timedelta = ONE_DAY) -> IdempotencyKey:
    """An idempotency key."""
    return IdempotencyKey(name, ttl)


def script(*steps: str) -> bytes:
    """A payload for the handler `script`: one step per attempt, the last one repeating.

    Steps: `ok`, `ok:3` (records processed), `fail`, `fail:reason` (returns Failed), `permanent:reason`, `raise:text`,
    `retry`, `retry:5` (seconds), `hold` (waits at `scene.gate`), `sleep:5` (seconds), `exit` (SystemExit), `value`
    (returns a string).
    """
    return "|".join(steps).encode()


def _definition(job_id: str, handler: str, trigger: Any, more: dict[str, Any]) -> JobDefinition:
    # Without a word about retries a clause gets exact, short waits.
    more.setdefault("retry", STEADY)
    return JobDefinition(job_id, handler, trigger, **more)
