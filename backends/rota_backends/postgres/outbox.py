"""The outbox: facts that an audience was not told yet."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from rota.backend import RELAY_LEASE, Audience, Fact, FailedDelivery, JobKey
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Row
from rota_backends.postgres.store import Store

_WARM = 2  # connections of a node that only relays: one may be busy with a trigger while the other relays

Failure = tuple[int, int, str]  # row of the outbox, place in it, error


class Outbox(Store):
    """See sql/0007. Rows of the audience events that this backend wrote itself are not read back (`OutboxCache`)."""

    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        own: dict[int, list[Fact]] = {}
        if audience is Audience.EVENTS:
            self._begin_warm_up(_WARM)
            await asyncio.sleep(0)  # handle answers that have arrived already: they may tell what need not be read
            own = self._outbox_cache.rows()
        failures = [(*rows.place_of(each.seq), each.error) for each in failed]
        while True:
            found = await self._relay(audience, node_id, done, failures, skip, limit, lease, own)
            if found is None:
                return None
            facts, done = list[Fact](), ()
            failures = await self._decode(found, own, facts)
            if not failures:  # else a row cannot be decoded: it is set aside, and the next ones are asked for
                break
        if skip:
            facts = [fact for fact in facts if JobKey(fact.scope_id, fact.subject) not in skip]
        return facts[:limit]  # a row may hold more

    async def _relay(
        self,
        audience: Audience,
        node_id: str,
        done: Sequence[int],
        failures: Sequence[Failure],
        skip: Collection[JobKey],
        limit: int,
        lease: timedelta,
        own: Mapping[int, Sequence[Fact]],
    ) -> list[Row] | None:
        """Rows of the outbox; None if another node relays."""
        found = await self._fetch_or_forget(
            self._sql.relay, audience.value, self._now(), node_id, lease, RELAY_LEASE, *rows.told_columns(done),
            [row for row, _, _ in failures], [place for _, place, _ in failures], [error for _, _, error in failures],
            [key.scope_id for key in skip], [key.job_id for key in skip], list(own),
            [facts[0].occurred_at for facts in own.values()], limit,
        )  # fmt: skip
        is_anothers = bool(found) and found[0]["id"] is None
        if audience is Audience.EVENTS:
            if is_anothers:
                self._outbox_cache.forget()
            else:
                self._outbox_cache.relayed(own, found[0]["id"] if found else None)
        return None if is_anothers else found

    async def _decode(
        self, found: Sequence[Row], own: Mapping[int, Sequence[Fact]], facts: list[Fact]
    ) -> list[Failure]:
        """Add the facts of these rows; failures for those that cannot be decoded (SAFE-1)."""
        definitions = await self._definitions(number for row in found for number in row["definition"] or ())
        failures: list[Failure] = []
        for row in found:
            if row["definition"] is None:
                facts += (fact for place, fact in enumerate(own[row["id"]], 1) if place not in row["told"])
                continue
            try:
                facts += list(rows.facts(row, definitions))
            except (KeyError, ValueError) as error:
                why = f"the stored facts cannot be read ({type(error).__name__})"
                failures += [(row["id"], place, why) for place in range(1, row["size"] + 1)]
        return failures
