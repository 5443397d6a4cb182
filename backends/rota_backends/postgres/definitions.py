"""Definitions and events, as text in rows and as values. Rows are written once, so a cache never goes stale."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import evolve

from rota.backend import Fact
from rota.codec import from_dict, to_dict
from rota.codec.definitions import read_definition
from rota.errors import RotaError
from rota.model.definition import JobDefinition, Manual
from rota.model.event import Event
from rota.model.validation import DEFAULT_SCOPE, check_name
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


def as_json(values: Iterable[Any]) -> str:
    """Values of the model as a JSON parameter: a list."""
    return json.dumps([to_dict(each) for each in values])


class Found(dict[int, JobDefinition]):
    """Definitions by their number. Those in `unreadable` could not be decoded: the reason is there, and the definition
    is as much as the other columns tell (SAFE-1)."""

    def __init__(self, known: Mapping[int, JobDefinition]) -> None:
        super().__init__(known)
        self.unreadable: dict[int, str] = {}


class Definitions:
    """Definitions by their number, the last used ones in memory.

    A restored store, or a standby that lost the last transactions, gives numbers again. Its clients have made new
    connections since: that is when the memory is cleared.
    """

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._memory: OrderedDict[int, JobDefinition] = OrderedDict()
        self._opened = 0  # connections when the memory was last cleared

    @property
    def _known(self) -> OrderedDict[int, JobDefinition]:
        if self._opened != self._connections.opened:
            self._opened = self._connections.opened
            self._memory.clear()
        return self._memory

    async def __call__(self, numbers: Iterable[int]) -> Found:
        """The definitions with these numbers. (They are returned, because another call may push them out of memory.)"""
        known = self._known
        wanted = {number: known.get(number) for number in numbers}
        found = Found({number: definition for number, definition in wanted.items() if definition is not None})
        if len(found) < len(wanted):
            await self._look_up([number for number in wanted if number not in found], found)
        return found

    async def _look_up(self, numbers: Sequence[int], found: Found) -> None:
        for row in await self._connections.fetch(self._statements.definitions, numbers):
            number = row["id"]
            try:
                found[number] = self._learn(number, row["body"], row["payload"])
            except Exception as error:
                found[number] = _partial(row["scope_id"], row["job_id"], row["handler"], row["queue"])
                found.unreadable[number] = f"its definition {why_unreadable(error)}"
        for number in set(numbers) - found.keys():
            found[number] = _partial(None, None, None, None)
            found.unreadable[number] = "its definition is missing"

    def learn_all(self, numbers: Sequence[int], bodies: Sequence[str | None], payloads: Sequence[bytes]) -> None:
        """Definitions that came with claims. One that cannot be decoded is left to be looked up."""
        for number, body, payload in zip(numbers, bodies, payloads, strict=True):
            if body is not None:
                with suppress(Exception):
                    self._learn(number, body, payload)

    def _learn(self, number: int, body: str, payload: bytes) -> JobDefinition:
        known = self._known
        definition = known.get(number)
        if definition is None:
            definition = read(body, payload)
            if len(known) > _MOST:
                known.popitem(last=False)
            known[number] = definition
        return definition


def read(body: str, payload: bytes) -> JobDefinition:
    """A definition as the store has it."""
    definition = read_definition(body)
    return evolve(definition, payload=payload) if payload else definition


def why_unreadable(error: Exception) -> str:
    """What is wrong with a stored value, without the value itself (ACCESS-2)."""
    if isinstance(error, RotaError):
        return f"cannot be read: {error}"
    return "is not JSON" if isinstance(error, json.JSONDecodeError) else f"cannot be read ({type(error).__name__})"


def _partial(scope_id: object, job_id: object, handler: object, queue: object) -> JobDefinition:
    return JobDefinition(
        _name_or("unreadable", job_id), _name_or("unreadable", handler), Manual(),
        scope_id=_name_or(DEFAULT_SCOPE, scope_id), queue=_name_or("default", queue),
    )  # fmt: skip


def _name_or(default: str, stored: object) -> str:
    try:
        return check_name("name", stored)
    except RotaError:
        return default
