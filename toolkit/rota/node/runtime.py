"""The objects of an open scheduler: the node, its loops, and their connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.backend.port import Backend
from rota.events import EventStore, Notifier
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.model.ids import new_node_id
from rota.node.heartbeat import Heartbeat
from rota.node.loop import Loop
from rota.node.options import Options
from rota.node.relay import Relay, ToAdmins, ToEvents
from rota.node.retention import Housekeeping
from rota.node.slots import Node
from rota.node.sweep import Notify, Sweep
from rota.node.ticker import Ticker


class Runtime:
    """Created each time the scheduler is entered."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        services: Services,
        options: Options,
        *,
        events: EventStore | None,
        notifier: Notifier | None,
        notify: Notify,
        job_store: int,
    ) -> None:
        self.node = Node(
            backend,
            handlers,
            services,
            node_id=new_node_id(),
            concurrency=options.concurrency,
            queues=options.queues,
            lease=options.lease,
            cancel_grace=options.cancel_grace,
            keep=options.retention.runs,
            log_errors=options.log_errors,
        )
        self.works = self.node.capacity.slots > 0
        self.heartbeat = Heartbeat(self.node)
        self.ticker = Ticker(backend, self.node)
        self.relays: list[Relay] = []
        if events is not None:
            relay = Relay(ToEvents(backend, self.node.node_id, events), options.lease)
            self.node.on_facts = relay.look
            self.relays.append(relay)
        if self.works or notifier is not None:
            self.relays.append(Relay(ToAdmins(backend, self.node.node_id, notifier), options.lease))
        self.sweep = None if events is None else Sweep(backend, events, notify, job_store)
        self.housekeeping = Housekeeping(backend, options.retention)
        self.stop_waking: Callable[[], None] = lambda: None
        self.loops = list(self._loops())

    def _loops(self) -> Iterable[Loop]:
        if self.works:
            yield from (self.heartbeat.loop, self.node.loop, self.ticker.loop, self.housekeeping.loop)
        yield from (relay.loop for relay in self.relays)
        if self.sweep is not None:
            yield self.sweep.loop

    def wake(self) -> None:
        """The backend reports that something may be claimable or due."""
        if self.works:
            self.node.wake()
