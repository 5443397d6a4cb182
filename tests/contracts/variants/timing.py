"""A store with a coarse clock, and nodes whose own clock is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from rota.clock import Clock, VirtualClock
from rota_backends.inprocess import InProcessBackend
from tests.contracts.variants.passing import PassedOn

_WRONG_BY = timedelta(minutes=7, seconds=13)


class OtherFace(VirtualClock):
    """The same clock, read in another way: it moves with the one it was made from."""

    __slots__ = ("_read",)

    def __init__(self, real: Clock | None, read: Callable[[datetime], datetime]) -> None:
        assert isinstance(real, VirtualClock)
        self.__dict__ = real.__dict__
        self._read = read

    def now(self) -> datetime:
        return self._read(super().now())


class WholeSeconds(InProcessBackend):
    """It keeps whole seconds, and payloads of no more than 64 KiB."""

    resolution = timedelta(seconds=1)
    max_payload = 64 * 1024

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=OtherFace(clock, lambda now: now.replace(microsecond=0)))


class WrongNodes(PassedOn):
    """The clocks of its nodes are minutes ahead of the store's: only the store's counts (TIME-1, LEASE-6)."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(InProcessBackend(clock=clock))
        self.clock = OtherFace(clock, lambda now: now + _WRONG_BY)
