"""Rows of the outbox that this backend wrote itself: to tell their facts, they need not be read back.

The table decides all the same: only rows that are still there are told, in their order, without the facts already told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import repeat

from rota.backend import Claim, Fact, FactKind, Settlement
from rota_backends.postgres import rows

_MOST_ROWS = 64
_MOST_FACTS = 20_000


class OutboxCache:
    """Facts by their row of the outbox, from the answer that the row is stored until they are told, while this backend
    relays. Facts and not claims, because claims have payloads.

    When the cache is full, newer rows are not added: the oldest are told next.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[Fact]] = {}
        self._relays = False

    def rows(self) -> dict[int, list[Fact]]:
        """The cached rows."""
        return dict(self._rows)

    def triggered(self, number: int, claims: Sequence[Claim]) -> None:
        """Cache a row that says that these runs started, in this order."""
        self._remember(number, FactKind.TRIGGERED, claims[0].started_at, claims, repeat(None))

    def settled(self, number: int, at: datetime, batch: Sequence[Settlement]) -> None:
        """Cache a row that says that these runs succeeded, in this order."""
        claims = [each.claim for each in batch if each.claim is not None]
        if len(claims) == len(batch):
            self._remember(number, FactKind.SUCCEEDED, at, claims, (each.records_processed for each in batch))

    def _remember(
        self, number: int, kind: FactKind, at: datetime, claims: Sequence[Claim], records: Iterable[int | None]
    ) -> None:
        kept = sum(map(len, self._rows.values()))
        if self._relays and len(self._rows) < _MOST_ROWS and kept + len(claims) <= _MOST_FACTS:
            self._rows[number] = rows.facts_of_claims(number, kind, at, claims, records)

    def relayed(self, asked: Collection[int], first: int | None) -> None:
        """This backend relays, and the store has no row before `first` (None: no row at all) of those asked for."""
        self._relays = True
        for number in asked:
            if first is None or number < first:
                self._rows.pop(number, None)

    def forget(self) -> None:
        """Drop everything, and cache nothing until this backend relays."""
        self._rows.clear()
        self._relays = False
