"""Durable backends that break one rule each, on either store: the suite has to catch every one of them.

What breaks at the port is put around the calls of a sound backend here; what breaks inside a store is in
broken_sqlite.py and broken_postgres.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from rota.backend import Backend, Claimed, ClaimRequest, Settlement
from rota.decide.attempt import succeeded

Settled = tuple[list[bool], Claimed | None]

# The letters are those of failures.md, "Proving the suite has power"; two more have no letter there.
BROKEN = {
    "unfenced": "(a) whoever settles a leased run is believed, whatever his token",
    "acknowledges-first": "(b) a run counts as done when it is handed out",
    "reads-then-writes": "(c) what is ready is read first and taken later, without looking again",
    "node-clock": "(d) leases by the clock of whoever looks",
    "letters-later": "(e) the dead letter is filed in a transaction of its own, after the run's end",
    "no-occurrence-key": "(f) whoever thinks an occurrence is due fires it",
    "loses-facts": "(g) the facts of every seventh settlement are forgotten",
    "impatient": "(h) a lease counts as expired after a quarter of its time",
}


def sabotage(backend: Backend, broken: str | None) -> None:
    """Break it, if it is one of those that break at the port."""
    if broken in _AT_THE_PORT:
        _AT_THE_PORT[broken](backend)


def _acknowledges_first(backend: Backend) -> None:
    settle = backend.settle

    async def settle_and_forget(
        batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        settled, claimed = await settle(batch, then, keep=keep)
        if then is not None and claimed is not None and claimed.claims:
            await settle([succeeded(claim, then.node_id) for claim in claimed.claims])
        return settled, claimed

    async def claim_and_forget(request: ClaimRequest) -> Claimed:
        _, claimed = await settle_and_forget((), request)
        assert claimed is not None
        return claimed

    _replace(backend, settle=settle_and_forget, claim=claim_and_forget)


def _loses_facts(backend: Backend) -> None:
    settle, count = backend.settle, 0

    def forgetful(new: Settlement) -> Settlement:
        nonlocal count
        count += 1
        return evolve(new, facts=()) if count % 7 == 0 else new

    async def settle_and_lose(batch: Sequence[Settlement], *args: Any, **options: Any) -> Settled:
        return await settle([forgetful(each) for each in batch], *args, **options)

    _replace(backend, settle=settle_and_lose)


def _impatient(backend: Backend) -> None:
    claim, settle, renew = backend.claim, backend.settle, backend.renew

    def sooner(request: ClaimRequest) -> ClaimRequest:
        return evolve(request, lease=request.lease / 4)

    async def claim_briefly(request: ClaimRequest) -> Claimed:
        return await claim(sooner(request))

    async def settle_briefly(
        batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        return await settle(batch, None if then is None else sooner(then), keep=keep)

    async def renew_briefly(node: Any, leases: Any) -> Any:
        return await renew(node, [ref._replace(lease=ref.lease / 4) for ref in leases])

    _replace(backend, claim=claim_briefly, settle=settle_briefly, renew=renew_briefly)


def _replace(backend: Backend, **calls: Callable[..., Any]) -> None:
    for name, call in calls.items():
        setattr(backend, name, call)


_AT_THE_PORT: dict[str, Callable[[Backend], None]] = {
    "acknowledges-first": _acknowledges_first,
    "loses-facts": _loses_facts,
    "impatient": _impatient,
}
