"""Wake-ups are hints: they may be missing, spurious or repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from rota.backend import Fact, JobKey, LeaseRef, NodeInfo, Renewal, SetAside
from rota.capability import Capability
from rota_backends.inprocess import InProcessBackend


class PollOnly(InProcessBackend):
    """It wakes nobody."""

    capabilities = Capability(0)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class Nervous(InProcessBackend):
    """It wakes everybody twice, and also when there is nothing to do."""

    def _wake(self) -> None:
        super()._wake()
        super()._wake()

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        self._wake()
        return await super().renew(node, leases)

    async def relay(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[SetAside] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        if done:
            self._wake()
        return await super().relay(node_id, done=done, set_aside=set_aside, skip=skip, limit=limit, lease=lease)
