"""Invariants of what nodes take and give back: S19."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.evidence import Evidence
from tests.faults.journal import Entry

_LINGERS = 3.0  # seconds a session of a dead process or a cut line may live on
# What a node may have more of at the end than when it started: idle connections and slots, threads that wait for work.
_MORE = {"files": 8, "threads": 8, "tasks": 16, "kilobytes": 20 * 1024}


def s19(evidence: Evidence) -> Iterator[str]:
    """Connections within the pool, no transaction left open, everything else back where it began; no call fails
    where there is no fault."""
    yield from _sessions(evidence)
    yield from _leaks(evidence)
    if evidence.is_undisturbed:
        refused = [entry for entry in evidence.journal if entry.kind == "refused"]
        yield from (f"without a fault {each.data['call']} failed: {each.data['error']}" for each in refused)


def _sessions(evidence: Evidence) -> Iterator[str]:
    too_many_since: float | None = None
    for each in evidence.sessions:
        if each.idle:
            yield f"{each.idle} sessions are idle in a transaction"
        if each.count <= each.most:
            too_many_since = None
        elif too_many_since is None:
            too_many_since = each.at
        elif each.at - too_many_since > _LINGERS:
            yield f"{each.count} connections, {each.most} are allowed"


def _leaks(evidence: Evidence) -> Iterator[str]:
    seen: dict[int, list[Entry]] = defaultdict(list)
    for entry in evidence.journal:
        if entry.kind == "resources":
            seen[entry.pid].append(entry)
    for pid, entries in seen.items():
        first, last = entries[0].data, entries[-1].data
        for name, more in _MORE.items():
            if last[name] > first[name] + more:
                yield f"node {pid} had {first[name]} {name}, and {last[name]} in the end"
