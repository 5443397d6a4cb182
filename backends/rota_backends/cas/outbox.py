"""Facts that an audience is to be told, in order; one node at a time tells it (HIST-4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from rota.backend.fact import Fact
from rota.backend.messages import Audience, FailedDelivery, JobKey, is_fresh, is_relayed
from rota_backends.cas import keys
from rota_backends.cas.records import DAMAGE, Holder, Told, dump, load, load_or_none, reason_of
from rota_backends.cas.session import Session
from rota_backends.cas.store import Put, Versioned


async def relay(
    session: Session,
    audience: Audience,
    node_id: str,
    done: Sequence[int],
    failed: Sequence[FailedDelivery],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | None:
    """Forget what was told, keep the lease, give the next page; None while another node relays."""
    if audience is Audience.ADMINS and not await session.store.scan(keys.outbox(audience), "", 1):
        return []
    if not await _relays(session, audience, node_id, lease):
        return None
    await _forget_told(session, audience, done, failed)
    return await _untold(session, audience, skip, limit)


async def _untold(session: Session, audience: Audience, skip: Collection[JobKey], limit: int) -> list[Fact]:
    """The next ones in order, read no further than the page."""
    page: list[Fact] = []
    async for found in session.all(keys.outbox(audience)):
        fact = await _fact(session, found)
        if fact is not None and fact.key not in skip:
            page.append(fact)
        if len(page) >= limit:
            break
    return page


async def _forget_told(
    session: Session, audience: Audience, done: Sequence[int], failed: Sequence[FailedDelivery]
) -> None:
    for start in range(0, len(done), 50):
        await session.store.commit([Put(keys.fact(audience, seq), None, None) for seq in done[start : start + 50]])
    for each in failed:
        aside = Put(keys.aside(audience, each.seq), None, each.error.encode())
        await session.store.commit([Put(keys.fact(audience, each.seq), None, None), aside])


async def _relays(session: Session, audience: Audience, node_id: str, lease: timedelta) -> bool:
    where = keys.lock(audience.lock)

    async def attempt() -> tuple[bool, list[Put]]:
        found = (await session.store.get([where])).get(where)
        now = await session.now()  # after it was read: a lease taken meanwhile must not look too far ahead
        held = None if found is None else load(found.value, Holder)
        answer, taken = _relayed_by(held, node_id, now, lease)
        version = 0 if found is None else found.version
        return answer, [] if taken is None else [Put(where, version, dump(taken, Holder))]

    return await session.until_written(attempt, where)


async def _fact(session: Session, found: Versioned) -> Fact | None:
    """A fact that cannot be read is set aside: it must not hold up the others (SAFE-1)."""
    try:
        told: Told = load(found.value, Told)
        return told.fact()
    except DAMAGE as error:
        aside = found.key.replace("outbox/", "aside/", 1)
        await session.store.commit([Put(found.key, found.version, None), Put(aside, None, reason_of(error).encode())])
        return None


async def untold_since(session: Session, audience: Audience) -> datetime | None:
    """When the first fact happened that the audience was not told."""
    for found in await session.store.scan(keys.outbox(audience), "", 1):
        told: Told | None = load_or_none(found.value, Told)
        return None if told is None else told.at
    return None


def _relayed_by(held: Holder | None, node_id: str, now: datetime, lease: timedelta) -> tuple[bool, Holder | None]:
    """One node at a time; its lease is written again only when half of it has gone, for it asks often."""
    if held is not None and held.holder != node_id and is_relayed(held.until, now):
        return False, None
    if held is not None and held.holder == node_id and is_fresh(held.until, now, lease):
        return True, None
    return True, Holder(node_id, now + lease)
