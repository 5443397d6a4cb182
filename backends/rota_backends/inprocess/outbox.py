"""Facts that are to be told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from rota.backend import Fact, FailedDelivery, JobKey


class Outbox:
    """The facts that one audience was not told yet, in order."""

    def __init__(self) -> None:
        self._facts: deque[Fact] = deque()
        self.set_aside: list[tuple[Fact, str]] = []
        self.add: Callable[[Fact], None] = self._facts.append

    @property
    def first(self) -> Fact | None:
        return self._facts[0] if self._facts else None

    def page(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], limit: int
    ) -> list[Fact]:
        self._drop(done)
        if failed:
            self._put_aside(failed)
        if not skip:
            return list(islice(self._facts, limit))
        left = (fact for fact in self._facts if fact.key not in skip)
        return list(islice(left, limit))

    def _drop(self, done: Sequence[int]) -> None:
        facts = self._facts
        told = set(done)
        while facts and facts[0].seq in told:
            told.discard(facts.popleft().seq)
        if told:
            left = [fact for fact in facts if fact.seq not in told]
            facts.clear()
            facts.extend(left)

    def _put_aside(self, failed: Sequence[FailedDelivery]) -> None:
        errors = {each.seq: each.error for each in failed}
        self.set_aside += [(fact, errors[fact.seq]) for fact in self._facts if fact.seq in errors]
        self._drop(list(errors))
