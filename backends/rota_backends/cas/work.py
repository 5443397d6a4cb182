"""Work: claims, leases, settlements."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from rota.backend import liveness
from rota.backend.messages import (
    Audience,
    Claim,
    Claimed,
    ClaimRequest,
    JobKey,
    LeaseRef,
    NodeInfo,
    Renewal,
    Settlement,
)
from rota.backend.partly import partly
from rota.model.run import RunState
from rota_backends.cas import keys
from rota_backends.cas.base import PAGE, Base, at_once
from rota_backends.cas.leases import as_claim, end_attempt, hand_over, take_back
from rota_backends.cas.records import Holder, Holding, Place, Run, load
from rota_backends.cas.step import Step
from rota_backends.cas.store import Put, Versioned

_EXPIRED_PAGE = 100
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

Serves = Callable[[str], Awaitable[bool]]


class Work(Base):
    """Work: claims, leases, settlements."""

    # --- claims ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        now = await self.now()
        # Three questions that do not depend on each other: a node asks them at every look, so it asks them at once.
        (timed, next_at), claims, ready = await at_once(
            self._timed(now), self._claimed_before(request), self._ready(request.limit)
        )
        with partly(claims):
            if not claims and request.limit > 0:
                starting = sorted((place for place in timed if not place.is_lease), key=_turn)
                await self._take(request, starting, ready, claims)
            expired = await self._expired([place.key for place in timed if place.is_lease][:_EXPIRED_PAGE], now)
        ends = [claim.lease_until for claim in claims] + ([] if next_at is None else [next_at])
        return Claimed(now, claims, expired, min(ends, default=None))

    async def _timed(self, now: datetime) -> tuple[list[Place], datetime | None]:
        """The lanes whose time or lease is over; and when that comes for the next one."""
        over: list[Place] = []
        async for each in self._all("later/"):
            if keys.instant_of(each.key) > now:
                return over, keys.instant_of(each.key)
            over.append(load(each.value, Place))
        return over, None

    async def _ready(self, limit: int) -> list[Versioned]:
        return await self.store.scan("ready/", "", PAGE) if limit > 0 else []

    async def _claimed_before(self, request: ClaimRequest) -> list[Claim]:
        """A repeat gives what the first call took and nothing new: its claims bear the number."""
        if not request.number or self._asked.get(request.node_id) != request.number:  # a node has one connection
            self._asked[request.node_id] = request.number
            return []
        held = [load(each.value, Holding) async for each in self._all(_held_by(request.node_id))]
        return await self._as_claims([each.key for each in held if each.number == request.number], request.handlers)

    async def _take(
        self, request: ClaimRequest, starting: list[Place], ready: list[Versioned], claims: list[Claim]
    ) -> None:
        """As many as there is room for, at once; where nothing was to be had, the next ones in turn."""
        wave: list[Place] = []
        taken: Counter[str] = Counter()
        serves, seen = self._serves(request), set[JobKey]()

        def has_room(queue: str) -> bool:
            return request.queues is None or request.queues.get(queue, 0) > taken[queue]

        async def take_wave() -> None:
            nonlocal taken
            claims.extend(await self._take_all(wave, request, serves))
            wave.clear()
            taken = Counter(claim.queue for claim in claims)

        async for place in self._in_turn(starting, ready):
            if place.key in seen or not await serves(place.handler):
                continue
            if not has_room(place.queue) and any(each.queue == place.queue for each in wave):
                await take_wave()  # who gets nothing must not keep its slot from the next
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

    async def _take_all(self, wave: list[Place], request: ClaimRequest, serves: Serves) -> list[Claim]:
        taken = await self._for_each(wave, lambda place: self._take_one(place, request, serves))
        return [claim for claim in taken if claim is not None]

    async def _in_turn(self, starting: list[Place], ready: list[Versioned]) -> AsyncGenerator[Place]:
        """Ready lanes and those whose time has come, by priority, then by who became ready first."""
        rest = list(reversed(starting))
        async for each in self._all("ready/", first=ready):
            place: Place = load(each.value, Place)
            while rest and _turn(rest[-1]) < _turn(place):
                yield rest.pop()
            yield place
        while rest:
            yield rest.pop()

    def _serves(self, request: ClaimRequest) -> Serves:
        """Whether this node may run a handler: it has it, or nobody has and it can only be buried (RETRY-4)."""
        served: frozenset[str] | None = None

        async def serves(handler: str) -> bool:
            nonlocal served
            if handler in request.handlers:
                return True
            if served is None:
                served = liveness.served(await self._nodes(), request.node_id, await self.now())
            return handler not in served

        return serves

    async def _take_one(self, place: Place, request: ClaimRequest, serves: Serves) -> Claim | None:
        async def change(step: Step) -> Claim | None:
            entry, job = step.lane.next_entry(step.now), step.lane.job
            if entry is None or job is None or job.queue != place.queue or not await serves(entry.handler):
                return None
            run = await step.run_of(entry)
            hand_over(step, entry, run, request)
            return as_claim(step.lane, run, entry.handler not in request.handlers)

        return await self._change(place.key, change)

    async def _expired(self, wanted: list[JobKey], now: datetime) -> list[Claim]:
        return [claim for claim in await self._as_claims(wanted, None) if claim.lease_until <= now]

    async def _as_claims(self, wanted: list[JobKey], handlers: frozenset[str] | None) -> list[Claim]:
        lanes = [lane for lane in await self._lanes(wanted) if lane.head is not None and lane.is_leased]
        where = {keys.run(lane.key, lane.head.seq): lane for lane in lanes if lane.head is not None}
        claims: list[Claim] = []
        for key, found in (await self._get(where)).items():
            run, lane = load(found.value, Run), where[key]
            if run.state is RunState.RUNNING and run.token == lane.token:  # else it was settled between two reads
                claims.append(as_claim(lane, run, handlers is not None and run.job.handler_name not in handlers))
        return claims

    # --- leases ---

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        now = await self.now()
        await self._seen(node, now)
        renewal = Renewal(now, [], [], [])
        renewed = await self._for_each(leases, lambda ref: self._renew(node, ref))
        for ref, (is_held, stop) in zip(leases, renewed, strict=True):
            if not is_held:
                renewal.lost.append(ref)
            elif stop is not None:
                renewal.stop.append((ref, stop))
        listed = {(ref.key, ref.token) for ref in leases}
        async for each in self._all(_held_by(node.node_id)):
            held: Holding = load(each.value, Holding)
            if (held.key, held.token) not in listed:
                renewal.orphans.append(LeaseRef(held.key, held.run_id, held.token, node.lease))
        return renewal

    async def _renew(self, node: NodeInfo, ref: LeaseRef) -> tuple[bool, str | None]:
        async def change(step: Step) -> tuple[bool, str | None]:
            lane = step.lane
            if lane.lease_until is None or (lane.token, lane.node_id) != (ref.token, node.node_id):
                return False, None
            lane.lease_until = max(lane.lease_until, step.now + ref.lease)
            return True, lane.stop

        return await self._change(ref.key, change)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await self._for_each(leases, self._hand_back)
        if leaving is not None:
            with partly(leases):
                await self.store.commit([Put(_node(leaving), None, None)])
            with partly([leaving]):
                for audience in Audience:
                    lock = keys.lock(audience.lock)
                    await self._swap(lock, Holder, lambda held: (None, _given_up(held, leaving)))

    async def _hand_back(self, ref: LeaseRef) -> None:
        async def change(step: Step) -> None:
            lane = step.lane
            if lane.is_leased and lane.token == ref.token and lane.head is not None:
                take_back(step, lane.head, await step.run_of(lane.head))

        await self._change(ref.key, change)

    # --- settlements ---

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        settled = await self._for_each(batch, self._settle)
        with partly(settled):
            return settled, None if then is None else await self.claim(then)

    async def _settle(self, new: Settlement) -> bool:
        async def change(step: Step) -> bool:
            lane = step.lane
            head = lane.head
            if lane.lease_until is None or head is None or (lane.token, head.run_id) != (new.token, new.run_id):
                return lane.settled == (new.token, new.node_id)
            if new.only_if_expired and lane.lease_until > step.now:
                return False
            end_attempt(step, head, await step.run_of(head), new)
            return True

        return await self._change(new.key, change)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        found = await self._find(run_id, scope_id)
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

        return await self._change(found.key, change)

    # --- nodes ---

    async def _seen(self, node: NodeInfo, now: datetime) -> None:
        await self._swap(_node(node.node_id), NodeInfo, lambda before: (None, liveness.heard_of(node, before, now)))

    async def _nodes(self) -> list[NodeInfo]:
        return [load(each.value, NodeInfo) async for each in self._all("node/")]


def _turn(place: Place) -> tuple[int, int]:
    return -place.priority, place.order


def _node(node_id: str) -> str:
    return f"node/{node_id}"


def _given_up(held: Holder | None, node_id: str) -> Holder | None:
    """Somebody else may relay at once."""
    return None if held is None or held.holder != node_id else Holder("", _LONG_AGO, held.token)


def _held_by(node_id: str) -> str:
    return f"held/{keys.name(node_id)}/"
