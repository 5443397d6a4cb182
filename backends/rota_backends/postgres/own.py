"""What this backend put into the outbox itself: to tell of it, the rows need not be read back.

The rows are the truth all the same: only what the store still has is told, in its order, without what it says was told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from attrs import define

from rota.backend import Claim, FactKind, Settlement

_MOST_ROWS = 64
_MOST_FACTS = 20_000


@define(eq=False)
class OwnRow:
    """A row of the outbox: these runs started, or succeeded, in this order."""

    at: datetime
    kind: FactKind
    claims: Sequence[Claim]
    records: Sequence[int | None] | None = None


class OwnRows:
    """Rows by their number, from the answer that they are stored until they are told; kept while this backend relays.

    When there is no room what comes is not remembered: the oldest ones are told next.
    """

    def __init__(self) -> None:
        self._rows: dict[int, OwnRow] = {}
        self._relays = False

    def rows(self) -> dict[int, OwnRow]:
        """Those in memory now."""
        return dict(self._rows)

    def triggered(self, number: int, claims: Sequence[Claim]) -> None:
        """A row says that these runs started."""
        self._remember(number, OwnRow(claims[0].started_at, FactKind.TRIGGERED, claims))

    def settled(self, number: int, at: datetime, batch: Sequence[Settlement]) -> None:
        """A row says that these runs succeeded."""
        claims = [each.claim for each in batch if each.claim is not None]
        if len(claims) == len(batch):
            records = [each.records_processed for each in batch]
            self._remember(number, OwnRow(at, FactKind.SUCCEEDED, claims, records))

    def _remember(self, number: int, row: OwnRow) -> None:
        kept = sum(len(each.claims) for each in self._rows.values())
        if self._relays and len(self._rows) < _MOST_ROWS and kept + len(row.claims) <= _MOST_FACTS:
            self._rows[number] = row

    def relayed(self, asked: Collection[int], first: int | None) -> None:
        """This backend relays, and the store has no row before `first` (None: no row at all) of those asked for."""
        self._relays = True
        for number in asked:
            if first is None or number < first:
                self._rows.pop(number, None)

    def forget(self) -> None:
        """Everything; and remember nothing until this backend relays."""
        self._rows.clear()
        self._relays = False
