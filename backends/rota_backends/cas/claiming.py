"""Claims: which lanes a node is given, and the leases that have expired."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime

from rota.backend import liveness
from rota.backend.messages import Claim, Claimed, ClaimRequest, JobKey
from rota.backend.partly import partly
from rota.model.run import RunState
from rota_backends.cas import keys
from rota_backends.cas.leases import as_claim, hand_over
from rota_backends.cas.nodes import held_by, known
from rota_backends.cas.records import DAMAGE, Lane, Place, Run, load_or_none, read_run, run_of_entry
from rota_backends.cas.session import PAGE, Session, at_once
from rota_backends.cas.step import Step
from rota_backends.cas.store import Versioned

_EXPIRED_PAGE = 100

Serves = Callable[[str], Awaitable[bool]]


async def claim(session: Session, request: ClaimRequest) -> Claimed:
    """At most one run of each claimable lane, by priority, then by the time it became ready (RUN-2)."""
    now = await session.now()
    # Three questions that do not depend on each other: a node asks them at every look, so it asks them at once.
    (timed, next_at), claims, ready = await at_once(
        _timed(session, now), _claimed_before(session, request), _ready(session, request.limit)
    )
    with partly(claims):
        if not claims and request.limit > 0:
            starting = sorted((place for place in timed if not place.is_lease), key=_turn)
            await _take(session, request, starting, ready, claims)
        expired = await _expired(session, [place.key for place in timed if place.is_lease][:_EXPIRED_PAGE], now)
    ends = [claim.lease_until for claim in claims] + ([] if next_at is None else [next_at])
    return Claimed(now, claims, expired, min(ends, default=None))


async def _timed(session: Session, now: datetime) -> tuple[list[Place], datetime | None]:
    """The lanes whose start has come or whose lease is over, and the next such instant."""
    over: list[Place] = []
    async for each in session.all("later/"):
        if keys.instant_of(each.key) > now:
            return over, keys.instant_of(each.key)
        place: Place | None = load_or_none(each.value, Place)
        if place is not None:
            over.append(place)
    return over, None


async def _ready(session: Session, limit: int) -> list[Versioned]:
    return await session.store.scan("ready/", "", PAGE) if limit > 0 else []


async def _claimed_before(session: Session, request: ClaimRequest) -> list[Claim]:
    """A repeat gives what the first call took and nothing new: its claims bear the number."""
    if not request.number or session.asked.get(request.node_id) != request.number:  # a node has one connection
        session.asked[request.node_id] = request.number
        return []
    held = await held_by(session, request.node_id)
    return await _as_claims(session, [each.key for each in held if each.number == request.number], request.handlers)


async def _take(
    session: Session, request: ClaimRequest, starting: list[Place], ready: list[Versioned], claims: list[Claim]
) -> None:
    """As many as there is room for, at once; where nothing was to be had, the next ones in turn."""
    wave: list[Place] = []
    taken: Counter[str] = Counter()
    serves, seen = _serves(session, request), set[JobKey]()

    def has_room(queue: str) -> bool:
        return request.queues is None or request.queues.get(queue, 0) > taken[queue]

    async def take_wave() -> None:
        nonlocal taken
        claims.extend(await _take_all(session, wave, request, serves))
        wave.clear()
        taken = Counter(claim.queue for claim in claims)

    async for place in _in_turn(session, starting, ready):
        if place.key in seen or not await serves(place.handler):
            continue
        if not has_room(place.queue) and any(each.queue == place.queue for each in wave):
            await take_wave()  # a lane that turns out to be taken must not keep its slot from the next one
        if not has_room(place.queue):
            continue
        seen.add(place.key)
        wave.append(place)
        taken[place.queue] += 1
        if len(claims) + len(wave) == request.limit:
            await take_wave()
            if len(claims) == request.limit:
                break
    await take_wave()


async def _take_all(session: Session, wave: list[Place], request: ClaimRequest, serves: Serves) -> list[Claim]:
    taken = await session.for_each(wave, lambda place: _take_one(session, place, request, serves))
    return [claim for claim in taken if claim is not None]


async def _in_turn(session: Session, starting: list[Place], ready: list[Versioned]) -> AsyncGenerator[Place]:
    """Ready lanes and those whose time has come, by priority, then by the time they became ready."""
    rest = list(reversed(starting))
    async for each in session.all("ready/", first=ready):
        place: Place | None = load_or_none(each.value, Place)
        if place is None:
            continue
        while rest and _turn(rest[-1]) < _turn(place):
            yield rest.pop()
        yield place
    while rest:
        yield rest.pop()


def _serves(session: Session, request: ClaimRequest) -> Serves:
    """True if this node has the handler, or no node has: then the run can only be dead-lettered (RETRY-4)."""
    served: frozenset[str] | None = None

    async def serves(handler: str) -> bool:
        nonlocal served
        if handler in request.handlers:
            return True
        if served is None:
            served = liveness.served(await known(session), request.node_id, await session.now())
        return handler not in served

    return serves


async def _take_one(session: Session, place: Place, request: ClaimRequest, serves: Serves) -> Claim | None:
    async def change(step: Step) -> Claim | None:
        entry, job = step.lane.next_entry(step.now), step.lane.job
        if entry is None or job is None or job.queue != place.queue or not await serves(entry.handler):
            return None
        run = await step.run_of(entry)
        hand_over(step, entry, run, request)
        return as_claim(step.lane, run, entry.handler not in request.handlers)

    return await session.change(place.key, change)


async def _expired(session: Session, wanted: list[JobKey], now: datetime) -> list[Claim]:
    return [claim for claim in await _as_claims(session, wanted, None) if claim.lease_until <= now]


async def _as_claims(session: Session, wanted: list[JobKey], handlers: frozenset[str] | None) -> list[Claim]:
    lanes = [lane for lane in await session.lanes(wanted) if lane.head is not None and lane.is_leased]
    where = {keys.run(lane.key, lane.head.seq): lane for lane in lanes if lane.head is not None}
    claims: list[Claim] = []
    for key, found in (await session.get(where)).items():
        lane = where[key]
        run = _run_in(lane, found)
        if run.state is RunState.RUNNING and run.token == lane.token:  # else it was settled between two reads
            claims.append(as_claim(lane, run, handlers is not None and run.job.handler_name not in handlers))
    return claims


def _run_in(lane: Lane, found: Versioned) -> Run:
    """The run that holds a lane; one whose record cannot be read is made up from what the lane knows (SAFE-1)."""
    try:
        return read_run(found.value)
    except DAMAGE as error:
        assert lane.head is not None
        assert lane.last_attempt_at is not None
        return run_of_entry(lane.head, lane, lane.last_attempt_at, error)


def _turn(place: Place) -> tuple[int, int]:
    return -place.priority, place.order
