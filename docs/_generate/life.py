"""The life of a run, from the table of transitions."""

from __future__ import annotations

from rota.decide.attempt import TRANSITIONS, Transition
from rota.model.run import RunState

_INTRODUCTION = """\
# The life of a run

A run is one occurrence on its way to an end. It is QUEUED when it is stored and RUNNING from the moment its claim is
stored. When an attempt ends, on whatever node and backend, `rota.decide.attempt.decide` picks one row of the first
table below; this page is made from the same table. The store replaces that row in the two cases of the second table.
The third table has the changes that no attempt causes.

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

| the attempt | the run becomes | the attempt is recorded as | lifecycle events |
|---|---|---|---|
"""

_REST = """
## Replaced by the store

When an attempt ends, its node may not know yet that the run was cancelled or its job removed. The store knows, and
replaces the row (`Settlement.overruled`).

| the row says | but | the run becomes | lifecycle events |
|---|---|---|---|
| RETRYING | `cancel` was called while it ran | CANCELLED, with its error | nothing |
| RETRYING or DEAD | its job was unscheduled while it ran | CANCELLED, with its error | nothing |

If a node cannot renew a lease because the store is unreachable, it cancels the body and settles with the row "its lease
expired": the attempt is LOST in history, and the next attempt has the next number (RETRY-1).

An outcome is rejected if another node holds the lease: nothing is written (LEASE-1).

## Without an attempt ending

| what happens | the run becomes | lifecycle events |
|---|---|---|
| a claim is stored: token and attempt count up, the lease begins | RUNNING | JobTriggered |
| the node leaves and hands the run back, uncounted | QUEUED or RETRYING, as before the claim | nothing |
| `cancel` of a run that is queued or retrying | CANCELLED | nothing |
| `cancel` of a running one: its node learns of it at the next renewal | RUNNING, until the attempt ends | nothing |
| `unschedule` of its job while it is queued or retrying | CANCELLED | nothing |
| an event at the depth limit | stored as DEAD | JobFailed, JobDeadLettered |

A run whose handler is on no live node, whose payload cannot be decoded, or whose stored row cannot be read (SAFE-1) is
claimed like any other, and becomes a dead letter without a call of a handler.

The rules: RETRY-1 to RETRY-6, LEASE-3 to LEASE-5, CANCEL-1, REG-4, SAFE-1 and HIST-3 of the [contract](contract.md).
"""


def life_page() -> str:
    """The whole page."""
    assert {state for state in RunState if state.is_final} == {RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED}
    return _INTRODUCTION + "".join(map(_row, TRANSITIONS)) + _REST


def _row(transition: Transition) -> str:
    told = ", then ".join(fact.value for fact in transition.facts) or "nothing"
    return f"| {transition.when} | {transition.state.name} | {transition.outcome.name} | {told} |\n"
