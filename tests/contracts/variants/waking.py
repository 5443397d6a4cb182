"""Wake-ups are hints: they may be missing (and spurious, see `talking`)."""

from __future__ import annotations

from collections.abc import Callable

from rota.model.capability import Capability
from rota_backends.inprocess import InProcessBackend


class PollOnly(InProcessBackend):
    """It wakes nobody."""

    capabilities = Capability(0)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None
