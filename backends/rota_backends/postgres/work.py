"""Claims, settlements, renewals, hand-backs and cancellations."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.backend import Claim, Claimed, ClaimRequest, JobKey, LeaseRef, NodeInfo, Renewal, Settlement
from rota.backend.partly import partly
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Row
from rota_backends.postgres.store import Store

_NOW, _CLAIMS, _ENDED, _REFUSED, _SUCCEEDED = range(5)
_LOST, _STOP, _STRAY = 1, 2, 3


class Work(Store):
    """See sql/0005."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        _, claimed = await self.settle((), request)
        assert claimed is not None
        return claimed

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        if then is not None:
            self._begin_warm_up()
        settlements = rows.settlement_columns(batch) if batch else rows.NO_SETTLEMENTS
        found = await self._fetch_or_forget(
            self._sql.exchange, self._now(), *settlements, keep, *rows.claim_arguments(then)
        )
        told = _by_what(found)
        for row in told[_SUCCEEDED]:
            self._outbox_cache.settled(row["outbox"], row["at"], [batch[number - 1] for number in row["numbers"]])
        settled = [True] * len(batch)
        with partly([batch, *told[_CLAIMS]]):
            for row in told[_REFUSED]:
                await self._look_again(batch, [number - 1 for number in row["numbers"]], settled)
            return settled, None if then is None else await self._claimed(told, then)

    async def _look_again(self, batch: Sequence[Settlement], refused: Sequence[int], settled: list[bool]) -> None:
        """A repeat of a settlement that was stored is answered like the first (OPS-2)."""
        asked = [batch[index] for index in refused]
        before = await self._fetch(
            self._sql.settled_before, [each.key.scope_id for each in asked], [each.key.job_id for each in asked],
            [each.token for each in asked], [each.node_id for each in asked],
        )  # fmt: skip
        for index, row in zip(refused, before, strict=True):
            settled[index] = row[0]

    async def _claimed(self, told: Sequence[Sequence[Row]], request: ClaimRequest) -> Claimed:
        (last,) = told[_NOW]
        found = [*told[_CLAIMS], *told[_ENDED]]
        for row in found:
            if row["bodies"] is not None:
                self._definitions.learn_all(row["definitions"], row["bodies"], row["body_payloads"])
        definitions = await self._definitions(number for row in found for number in row["definitions"])
        claims: list[Claim] = []
        for row in told[_CLAIMS]:
            started = rows.claims(row, definitions, request)
            if row["outbox"] is not None:  # null for a repeat, and if no facts are recorded
                self._outbox_cache.triggered(row["outbox"], started)
            claims += started
        ended = [claim for row in told[_ENDED] for claim in rows.claims(row, definitions, request)]
        return Claimed(last["at"], claims, ended, last["next_at"])

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        found = await self._fetch(
            self._sql.renew, self._now(), node.node_id, sorted(node.handlers), node.slots, node.running, node.host,
            node.pid, node.lease, node.started_at, [ref.run_id for ref in leases], [ref.token for ref in leases],
            [ref.lease for ref in leases],
        )  # fmt: skip
        renewal = Renewal(found[-1]["at"], [], [], [])
        for row in found:
            if row["what"] == _LOST:
                renewal.lost.append(leases[row["number"] - 1])
            elif row["what"] == _STOP:
                renewal.stop.append((leases[row["number"] - 1], row["reason"]))
            elif row["what"] == _STRAY:
                key = JobKey(row["scope_id"], row["job_id"])
                renewal.orphans.append(LeaseRef(key, row["run_id"], row["token"], node.lease))
        return renewal

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await self._fetch(
            self._sql.hand_back, self._now(), self._announcer.tag(), [ref.run_id for ref in leases],
            [ref.token for ref in leases], leaving,
        )  # fmt: skip
        self._wake()

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        is_cancelled = await self._connections.value(
            self._sql.cancel, self._now(), self._announcer.tag(), run_id, scope_id, reason, request_id
        )
        self._wake()
        return bool(is_cancelled)


def _by_what(found: Sequence[Row]) -> list[list[Row]]:
    told: list[list[Row]] = [[] for _ in range(5)]
    for row in found:
        told[row[0]].append(row)
    return told
