"""All invariants of failures.md that can be seen from outside, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.faults import checks_events, checks_resources, checks_runs, checks_schedule
from tests.faults.evidence import Evidence

Check = Callable[[Evidence], Iterable[str]]

CHECKS: dict[str, Check] = {
    "S1": checks_runs.s1,
    "S2": checks_schedule.s2,
    "S3": checks_schedule.s3,
    "S4": checks_runs.s4,
    "S5": checks_runs.s5,
    "S6": checks_runs.s6,
    "S7": checks_runs.s7,
    "S8": checks_runs.s8,
    "S9": checks_schedule.s9,
    "S10": checks_events.s10,
    "S11": checks_runs.s11,
    "S12": checks_runs.s12,
    "S13": checks_runs.s13,
    "S14": checks_schedule.s14,
    "S15": checks_events.s15,
    "S16": checks_schedule.s16,
    "S17": checks_events.s17,
    "S18": checks_runs.s18,
    "S19": checks_resources.s19,
    "S20": checks_schedule.s20,
}


# They compare instants of the store with each other or with the machine's: where its clock steps they say nothing.
_NEEDS_A_STEADY_CLOCK = {"S4", "S6", "S8", "S9", "S11", "S13", "S14", "S16"}


def violations(evidence: Evidence) -> list[str]:
    """What is wrong, each with the invariant it breaks."""
    skipped = _NEEDS_A_STEADY_CLOCK if evidence.steps else set[str]()
    return [f"{name}: {each}" for name, check in CHECKS.items() if name not in skipped for each in check(evidence)]
