"""The life of a run, from the table of transitions."""

from __future__ import annotations

from rota.decide.attempt import TRANSITIONS, Transition
from rota.model.run import RunState

_INTRODUCTION = """\
# The life of a run

A run is one occurrence being worked to its end. It is QUEUED when it is stored, RUNNING from the moment its claim is
stored, and after each attempt one row of the table below applies. `rota.decide.attempt.decide` is that table as a pure
function; nothing else decides what becomes of a run. This page is made from it.

```
            claim                    it succeeded
 QUEUED ───────────► RUNNING ───────────────────────► SUCCEEDED
   │      ▲             │  │  it failed, timed out or was lost,
   │      │ hand back   │  │  attempts or time exhausted
   │      └─────────────┤  └──────────────────────────► DEAD ──replay──► a new run, QUEUED
   │                    │  attempts remain
   │       claim        ▼
   │    ┌─────────── RETRYING
   │    ▼               │
   └──► CANCELLED ◄─────┘  cancel, or unschedule
```

SUCCEEDED, DEAD and CANCELLED are final.

## After an attempt

| the attempt | the run becomes | the attempt is recorded as | told |
|---|---|---|---|
"""

_REST = """
## Without an attempt ending

| what happens | the run becomes | told |
|---|---|---|
| a claim is stored: token and attempt count up, the lease begins | RUNNING | JobTriggered |
| the node leaves and hands the run back: the attempt is uncounted | QUEUED or RETRYING, as before the claim | nothing |
| `cancel` of a run that is queued or retrying | CANCELLED | nothing |
| `cancel` of a running one: its node is told at the next renewal | RUNNING, until the attempt ends | nothing |
| `unschedule` of its job while it is queued or retrying | CANCELLED | nothing |
| `unschedule` while it is running, and the attempt fails | CANCELLED, with its error | nothing |
| an event at the depth limit | stored as DEAD | JobFailed, JobDeadLettered |

The rules: RETRY-1 to RETRY-6, LEASE-3 to LEASE-5, CANCEL-1, REG-4 and HIST-3 of the [contract](contract.md).
"""


def life_page() -> str:
    """The whole page."""
    assert {state for state in RunState if state.is_final} == {RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED}
    return _INTRODUCTION + "".join(map(_row, TRANSITIONS)) + _REST


def _row(transition: Transition) -> str:
    told = ", then ".join(fact.value for fact in transition.facts) or "nothing"
    return f"| {transition.when} | {transition.state.name} | {transition.outcome.name} | {told} |\n"
