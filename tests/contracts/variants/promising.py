"""More capabilities, and a higher limit."""

from __future__ import annotations

from rota.model.capability import Capability, Precision
from rota_contracts import Harness
from tests.contracts.transacting import Transacting, on


class Kept(Transacting):
    """It promises to survive, to the second, joins transactions, and takes payloads of a mebibyte."""

    capabilities = Transacting.capabilities | Capability.DURABLE
    max_payload = 1024 * 1024


def kept() -> Harness:
    """Reopened cold, the store is the same object: what a durable one looks like from outside."""
    return on(Kept, precision=Precision.SECOND)
