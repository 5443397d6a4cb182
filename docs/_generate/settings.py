"""Settings and defaults, from the signature of the scheduler; the meanings are written here."""

from __future__ import annotations

import inspect

from docs._generate.text import annotation_text, default_text, duration_text
from rota import Retention, Scheduler
from rota.cron.fields import MAX_EXPRESSION
from rota.errors import MAX_ERROR
from rota.model.validation import MAX_DURATION, MAX_NAME, MAX_PAYLOAD

MEANINGS = {
    "backend": "the store; an object may be shared by several schedulers, each of them a node",
    "handlers": "the handlers of this node; it claims only their runs (RETRY-4)",
    "events": "the event store: lifecycle events go there, and OnEvent jobs are swept from there (HIST-3, EVENT-5)",
    "queues": 'slots per queue, such as `{"slow": 4, "default": 16}`; other queues are left to other nodes (LEASE-7)',
    "concurrency": "slots for all queues together, where `queues` is not given; 0 makes a client that runs no handler",
    "lease": "how long a claim holds without renewal; renewed at a third of it (LEASE-2)",
    "drain_timeout": "how long leaving waits for handlers before it cancels them; None waits for ever (LEASE-5)",
    "cancel_grace": "how long a cancelled body may take to end before its lane is freed (LEASE-4); "
    "keep it below a fifth of the lease",
    "retention": "how much history is kept per job (HIST-2)",
    "requires": "capabilities the backend must have, or construction fails (CAP-1)",
    "services": "instances and factories by type or name, for `ctx.services`",
    "notifier": "is called for dead letters; by default they are logged (RETRY-5)",
    "lane_limit": "unfinished runs a job may hold, delayed ones included; beyond it `LaneFull` (EVENT-4)",
    "event_memory": "how long a handled event is remembered, so that a repeat makes no run (EVENT-3)",
    "max_depth": "the longest chain of events that cause events (EVENT-6)",
    "dead_letter_alarm": "dead letters at which `health()` says DEGRADED (OPS-1)",
    "log_errors": "`LogErrors.TYPE` keeps texts and values of handlers' exceptions out of the run log (LOG-1)",
}

_INTRODUCTION = """\
# Settings and defaults

## Scheduler

`Scheduler(backend, handlers, *, …)`; `Scheduler.open("memory:", handlers, …)` finds the backend by URL. Each URL takes
`?precision=second`, for six-field expressions: `memory:?precision=second`, `sqlite:jobs.db?precision=second`.

| argument | type | default | meaning |
|---|---|---|---|
"""

_REST = """
`Retention(runs={runs}, age={age}, dead_letters=None)`: the runs kept per job, and for how long. Dead letters are kept
until they are replayed or discarded, unless `dead_letters` is a duration. A trigger whose outcome was unknown is
repeated for up to the backend's patience (10 s). If the job finishes more than `runs` runs in that time, the first run
may have been deleted, and the repeat runs again: use a key where this matters.

## Environment

Read by `rota.composition.compose` and by the command line. They override the settings passed to `compose`.

| variable | meaning |
|---|---|
| `ROTA_JOBS_ENABLED` | `false`, `0`, `no` or `off`: a `NoScheduler`, which accepts every call and does nothing |
| `ROTA_BACKEND` | the URL of the backend, such as `memory:` |

## Limits

| what | limit |
|---|---|
| names (ID-1) | 1 to {name} code points |
| payload (ID-4) | {payload} KiB, or less where a backend says so |
| cron expression | {cron:,} characters |
| entries of a backoff | 1 to 1,000 |
| stored error text | {error} KiB |
| durations | more than zero, at most {years} years |
| pages of a listing | 1 to 1,000 entries |
| priority | 32 bits, signed; higher first |
| longest interval between two polls of a node | 1 s |
| tries to write a lifecycle event before it is set aside (HIST-4) | 20 |
"""


def settings_page() -> str:
    """The whole page."""
    parameters = [each for each in inspect.signature(Scheduler).parameters.values() if each.name != "self"]
    keep = Retention()
    rest = _REST.format(
        runs=keep.runs, age=duration_text(keep.age), name=MAX_NAME, payload=MAX_PAYLOAD // 1024,
        cron=MAX_EXPRESSION,
        error=MAX_ERROR // 1024, years=MAX_DURATION.days // 365,
    )  # fmt: skip
    return _INTRODUCTION + "".join(map(_row, parameters)) + rest


def _row(each: inspect.Parameter) -> str:
    kind = annotation_text(each.annotation).replace("|", "\\|")
    default = "required" if each.default is each.empty else f"`{default_text(each.default)}`"
    return f"| `{each.name}` | `{kind}` | {default} | {MEANINGS[each.name]} |\n"
