"""Nodes, their leases, and what they share: counts, named locks, settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from rota.backend import liveness
from rota.backend.messages import Audience, Census, LockGrant, NodeInfo
from rota.backend.partly import partly
from rota_backends.cas import keys
from rota_backends.cas.outbox import untold_since
from rota_backends.cas.records import Holder, Holding, Lane, load, load_or_none
from rota_backends.cas.session import Session
from rota_backends.cas.store import Put

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = 20  # unreadable jobs that a census names


async def seen(session: Session, node: NodeInfo, now: datetime) -> None:
    """The node is alive, for as long as its lease."""
    await session.swap(_where(node.node_id), NodeInfo, lambda before: (None, liveness.heard_of(node, before, now)))


async def gone(session: Session, node_id: str) -> None:
    """The node left: others need not wait for it, and may relay at once."""
    await session.store.commit([Put(_where(node_id), None, None)])
    with partly([node_id]):
        for audience in Audience:
            lock = keys.lock(audience.lock)
            await session.swap(lock, Holder, lambda held: (None, _given_up(held, node_id)))


async def known(session: Session) -> list[NodeInfo]:
    """Every node that has not left, dead ones too."""
    found = [load_or_none(each.value, NodeInfo) async for each in session.all("node/")]
    return [node for node in found if node is not None]


async def held_by(session: Session, node_id: str) -> list[Holding]:
    """The leases of a node."""
    found = [load_or_none(each.value, Holding) async for each in session.all(f"held/{keys.name(node_id)}/")]
    return [held for held in found if held is not None]


async def census(session: Session, scope_id: str | None = None) -> Census:
    """Counts of one scope, or of all."""
    now = await session.now()
    prefix = "lane/" if scope_id is None else keys.lanes(scope_id)
    found = {each.key: load_or_none(each.value, Lane) async for each in session.all(prefix)}
    lanes: list[Lane] = [lane for lane in found.values() if lane is not None]
    running = sum(lane.is_leased for lane in lanes)
    nodes = liveness.alive(await known(session), now)
    served = {handler for node in nodes for handler in node.handlers}
    letters = "letter/" if scope_id is None else keys.letters(scope_id)
    return Census(
        now=now,
        jobs=sum(lane.definition is not None for lane in lanes),
        queued=sum(lane.unfinished() for lane in lanes) - running,
        running=running,
        dead_letters=await _count(session, letters),
        set_aside=await _count(session, "aside/"),
        nodes=nodes,
        missing_handlers=tuple(sorted({lane.job.handler_name for lane in lanes if lane.job is not None} - served)),
        untold_since=await untold_since(session, Audience.EVENTS),
        unnoticed_since=await untold_since(session, Audience.ADMINS),
        unreadable=_unreadable(found),
    )


def _unreadable(found: Mapping[str, Lane | None]) -> tuple[str, ...]:
    """The jobs that cannot be read, by name, with the reason (SAFE-1)."""
    reasons = {key: "its record cannot be read" if lane is None else lane.unreadable for key, lane in found.items()}
    named = [f"{keys.job_of(key)}: {reason}" for key, reason in reasons.items() if reason is not None]
    return tuple(named[:_NAMED])


async def _count(session: Session, prefix: str) -> int:
    return sum([1 async for _ in session.all(prefix)])


async def lock(session: Session, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
    """Take, renew or release; the token changes with the holder (LEASE-8)."""
    now = await session.now()

    def change(held: Holder | None) -> tuple[LockGrant | None, Holder | None]:
        is_mine = held is not None and held.holder == node_id
        is_released = held is None or not held.holder
        if held is not None and held.until > now and not (is_mine or is_released):
            return None, None
        token = 1 if held is None else held.token + (not is_mine)
        until = now if ttl is None else now + ttl
        return LockGrant(name, token, until), Holder("" if ttl is None else node_id, until, token)

    return await session.swap(keys.lock(name), Holder, change)


async def setting(session: Session, name: str, expected: int | None, value: int | None) -> int:
    """Read a number, or set it if it is still what was expected."""

    def change(stored: int | None) -> tuple[int, int | None]:
        if value is not None and (stored or 0) == expected:
            return value, value
        return stored or 0, None

    return await session.swap(keys.setting(name), int, change, load)


def _where(node_id: str) -> str:
    return f"node/{node_id}"


def _given_up(held: Holder | None, node_id: str) -> Holder | None:
    return None if held is None or held.holder != node_id else Holder("", _LONG_AGO, held.token)
