"""More capabilities, and a higher limit."""

from __future__ import annotations

from rota.capability import Capability, Precision
from rota.clock import Clock
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness, Harness


class Kept(InProcessBackend):
    """It promises to survive, to the second, and takes payloads of a mebibyte."""

    capabilities = InProcessBackend.capabilities | Capability.DURABLE
    max_payload = 1024 * 1024


def kept() -> Harness:
    """Reopened cold, the store is the same object: what a durable one looks like from outside."""
    stores: list[Kept] = []

    def make(clock: Clock | None) -> Kept:
        stores.append(Kept(clock=clock, precision=Precision.SECOND))
        return stores[0]

    return BackendHarness(make, reopen=lambda clock: stores[0])
