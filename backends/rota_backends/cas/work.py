"""Work: leases renewed and handed back, settlements, cancelling."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.backend.messages import Claimed, ClaimRequest, LeaseRef, NodeInfo, Renewal, Settlement
from rota.backend.partly import partly
from rota.model.run import RunState
from rota_backends.cas.claiming import claim
from rota_backends.cas.leases import end_attempt, take_back
from rota_backends.cas.nodes import gone, held_by, seen
from rota_backends.cas.session import Session
from rota_backends.cas.step import Step


async def renew(session: Session, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
    """The node is alive, and its leases last longer."""
    now = await session.now()
    await seen(session, node, now)
    renewal = Renewal(now, [], [], [])
    renewed = await session.for_each(leases, lambda ref: _renew(session, node, ref))
    for ref, (is_held, stop) in zip(leases, renewed, strict=True):
        if not is_held:
            renewal.lost.append(ref)
        elif stop is not None:
            renewal.stop.append((ref, stop))
    listed = {(ref.key, ref.token) for ref in leases}
    for held in await held_by(session, node.node_id):
        if (held.key, held.token) not in listed:
            renewal.orphans.append(LeaseRef(held.key, held.run_id, held.token, node.lease))
    return renewal


async def _renew(session: Session, node: NodeInfo, ref: LeaseRef) -> tuple[bool, str | None]:
    async def change(step: Step) -> tuple[bool, str | None]:
        lane = step.lane
        if lane.lease_until is None or (lane.token, lane.node_id) != (ref.token, node.node_id):
            return False, None
        lane.lease_until = max(lane.lease_until, step.now + ref.lease)
        return True, lane.stop

    return await session.change(ref.key, change)


async def hand_back(session: Session, leases: Sequence[LeaseRef], leaving: str | None) -> None:
    """Undo claims that still hold (LEASE-5)."""
    await session.for_each(leases, lambda each: _hand_back(session, each))
    if leaving is not None:
        with partly(leases):
            await gone(session, leaving)


async def _hand_back(session: Session, ref: LeaseRef) -> None:
    async def change(step: Step) -> None:
        lane = step.lane
        if lane.is_leased and lane.token == ref.token and lane.head is not None:
            take_back(step, lane.head, await step.run_of(lane.head))

    await session.change(ref.key, change)


# --- settlements ---


async def settle(
    session: Session, batch: Sequence[Settlement], then: ClaimRequest | None
) -> tuple[list[bool], Claimed | None]:
    """Write settlements, each guarded by its token; then claim, if asked to."""
    settled = await session.for_each(batch, lambda each: _settle(session, each))
    with partly(settled):
        return settled, None if then is None else await claim(session, then)


async def _settle(session: Session, new: Settlement) -> bool:
    async def change(step: Step) -> bool:
        lane = step.lane
        head = lane.head
        if lane.lease_until is None or head is None or (lane.token, head.run_id) != (new.token, new.run_id):
            return lane.settled == (new.token, new.node_id)
        if new.only_if_expired and lane.lease_until > step.now:
            return False
        end_attempt(step, head, await step.run_of(head), new)
        return True

    return await session.change(new.key, change)


async def cancel(session: Session, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
    """End a run that has not started; ask a running one to stop (CANCEL-1)."""
    found = await session.find(run_id, scope_id)
    if found is None:
        return False

    async def change(step: Step) -> bool:
        lane, run = step.lane, await step.run_by_id(run_id)
        if run is None or run.state.is_final:
            return run is not None and run.ended_by == request_id
        run.ended_by = request_id
        if run.state is RunState.RUNNING:
            lane.stop = lane.stop or reason
            step.save(run)
            return True
        if lane.head is not None and lane.head.run_id == run_id:
            lane.head = None
        lane.queue = [entry for entry in lane.queue if entry.run_id != run_id]
        lane.ending = [entry for entry in lane.ending if entry.run_id != run_id]
        step.finish(run, RunState.CANCELLED, reason)
        return True

    return await session.change(found.key, change)
