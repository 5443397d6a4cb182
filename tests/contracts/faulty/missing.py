"""Faults in telling who is gone from who was not heard of (RETRY-4)."""

from __future__ import annotations

from datetime import datetime

from rota.backend import NodeInfo, liveness
from rota_backends.inprocess.nodes import Nodes
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, replaced


def _steady_while_alive(node: NodeInfo | None, now: datetime) -> datetime:
    return now if node is None or node.steady_since is None or not liveness.alive([node], now) else node.steady_since


def _of_all_ever_seen(nodes: Nodes, judge: str, now: datetime) -> frozenset[str]:
    return frozenset().union(*(node.handlers for node in nodes._nodes.values()))


FAULTS = [
    Fault("who has not renewed is gone, though nobody could", "RETRY-4", of(
        "RETRY-4", "an_outage_does_not_make_handlers_missing",
        "an_outage_does_not_make_handlers_of_the_less_lucky_missing",
    ), patch=replaced(Nodes, "served", lambda nodes, judge, now: nodes.handlers(now))),
    Fault("contact is unbroken as long as one's own row lasts", "RETRY-4", of(
        "RETRY-4", "an_outage_does_not_make_handlers_of_the_less_lucky_missing",
    ), patch=replaced(liveness, "_steady_since", _steady_while_alive)),
    Fault("who has not left is there for ever", "RETRY-4", of(
        "RETRY-4", "a_run_does_not_wait_for_ever_for_a_crashed_node",
    ), patch=replaced(Nodes, "served", _of_all_ever_seen)),
]  # fmt: skip
