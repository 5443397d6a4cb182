"""Which jobs wait for which events (EVENT-1)."""

from __future__ import annotations

from rota.decide.events import hears
from rota.model.definition import JobDefinition, OnEvent
from rota.model.event import Event
from rota_backends.inprocess.records import Lane


class Subscriptions:
    """Which jobs wait for which events (EVENT-1)."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str], dict[Lane, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def add(self, lane: Lane, definition: JobDefinition) -> None:
        trigger = definition.trigger
        if isinstance(trigger, OnEvent):
            self._by_kind.setdefault((trigger.source_module, trigger.event_type), {})[lane] = None

    def drop(self, lane: Lane, definition: JobDefinition) -> None:
        trigger = definition.trigger
        if isinstance(trigger, OnEvent):
            kind = (trigger.source_module, trigger.event_type)
            lanes = self._by_kind.get(kind, {})
            lanes.pop(lane, None)
            if not lanes:
                self._by_kind.pop(kind, None)

    def matching(self, event: Event) -> list[Lane]:
        lanes = self._by_kind.get((event.source_module, event.event_type), {})
        return [lane for lane in lanes if lane.definition is not None and hears(lane.definition, event)]
