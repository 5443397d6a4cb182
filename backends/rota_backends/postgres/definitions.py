"""Definitions and events, as text in rows and as values in memory. Written once, so a cache never goes stale."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from attrs import evolve

from rota.backend import Fact
from rota.codec import from_dict, to_dict
from rota.codec.definitions import read_definition
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota_backends.postgres.connections import Connections
from rota_backends.postgres.statements import Statements

_MOST = 10_000


def definition_text(definition: JobDefinition) -> str:
    """All but the payload, which has a column of its own."""
    data = to_dict(definition)
    del data["payload"]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def event_text(event: Event) -> str:
    """An event as a run keeps it."""
    plain = event.as_event() if isinstance(event, Fact) else event
    return json.dumps(to_dict(plain, Event))


def read_event(text: str | None) -> Event | None:
    """The counterpart of `event_text`."""
    if text is None:
        return None
    event: Event = from_dict(json.loads(text), Event)
    return event


def as_json(values: Any) -> str:
    """Values of the model as a JSON parameter."""
    return json.dumps(to_dict(values))


class Definitions:
    """Definitions by their number, the last used ones in memory.

    A store that was restored, or a standby that lost the last transactions, gives numbers again. Its clients have
    connected anew: what they remember is from before that, and forgotten.
    """

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._memory: OrderedDict[int, JobDefinition] = OrderedDict()
        self._opened = 0  # connections, when it was begun

    @property
    def _known(self) -> OrderedDict[int, JobDefinition]:
        if self._opened != self._connections.opened:
            self._opened = self._connections.opened
            self._memory.clear()
        return self._memory

    async def __call__(self, numbers: Iterable[int]) -> Mapping[int, JobDefinition]:
        """These ones. (Not to be looked up later: another call may put them out of memory.)"""
        known = self._known
        wanted = {number: known.get(number) for number in numbers}
        missing = [number for number, definition in wanted.items() if definition is None]
        if missing:
            for row in await self._connections.fetch(self._statements.definitions, missing):
                wanted[row["id"]] = self.learn(row["id"], row["body"], row["payload"])
        return cast("Mapping[int, JobDefinition]", wanted)

    def learn(self, number: int, body: str, payload: bytes) -> JobDefinition:
        """One that came along with something else."""
        known = self._known
        definition = known.get(number)
        if definition is None:
            if len(known) > _MOST:
                known.popitem(last=False)
            definition = known[number] = _read(body, payload)
        return definition

    def learn_all(self, numbers: Sequence[int], bodies: Sequence[str | None], payloads: Sequence[bytes]) -> None:
        """Those that came along, among others that were known before."""
        for number, body, payload in zip(numbers, bodies, payloads, strict=True):
            if body is not None:
                self.learn(number, body, payload)


def _read(body: str, payload: bytes) -> JobDefinition:
    definition = read_definition(body)
    return evolve(definition, payload=payload) if payload else definition
