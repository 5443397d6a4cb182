"""Claims, settlements, renewals: what a node says all day."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.backend import Claim, Claimed, ClaimRequest, JobKey, LeaseRef, NodeInfo, Renewal, Settlement
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Row
from rota_backends.postgres.store import Store

_NOW, _CLAIM, _EXPIRED, _REFUSED, _SUCCEEDED = range(5)
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
        settlements = rows.settlement_columns(batch) if batch else rows.NO_SETTLEMENTS
        found = await self._fetch_or_forget(
            self._sql.exchange, self._now(), *settlements, keep, *rows.claim_arguments(then)
        )
        told = _by_what(found)
        for row in told[_SUCCEEDED]:
            self._own.settled(row["outbox"], row["at"], [batch[number - 1] for number in row["numbers"]])
        settled = [True] * len(batch)
        if told[_REFUSED]:
            await self._look_again(batch, [row["number"] - 1 for row in told[_REFUSED]], settled)
        return settled, None if then is None else await self._claimed(told, then)

    async def _look_again(self, batch: Sequence[Settlement], refused: Sequence[int], settled: list[bool]) -> None:
        """A repeat of a settlement that was stored is as good as the first (OPS-2)."""
        asked = [batch[index] for index in refused]
        before = await self._fetch(
            self._sql.settled_before, [each.key.scope_id for each in asked], [each.key.job_id for each in asked],
            [each.token for each in asked], [each.node_id for each in asked],
        )  # fmt: skip
        for index, row in zip(refused, before, strict=True):
            settled[index] = row[0]

    async def _claimed(self, told: Sequence[Sequence[Row]], request: ClaimRequest) -> Claimed:
        (last,) = told[_NOW]
        found = [*told[_CLAIM], *told[_EXPIRED]]
        for row in found:
            if row["body"] is not None:
                self._definitions.learn(row["definition"], row["body"], row["body_payload"])
        definitions = await self._definitions(row["definition"] for row in found)
        claims = [rows.claim(row, definitions, request) for row in told[_CLAIM]]
        self._remember(told[_CLAIM], claims)
        expired = [rows.claim(row, definitions, request) for row in told[_EXPIRED]]
        return Claimed(last["at"], claims, expired, last["next_at"])

    def _remember(self, found: Sequence[Row], claims: Sequence[Claim]) -> None:
        by_row: dict[int | None, list[Claim]] = {}
        for row, claim in zip(found, claims, strict=True):
            by_row.setdefault(row["outbox"], []).append(claim)
        for number, started in by_row.items():
            if number is not None:  # a repeat does not say, and where nobody listens there is none
                self._own.triggered(number, started)

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
                renewal.strays.append(LeaseRef(key, row["run_id"], row["token"], node.lease))
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
