"""Reads stored definitions fast: jobs that differ only in their name share the decoded rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from attrs import fields

from rota.codec import from_stored
from rota.model.definition import JobDefinition

_BEFORE = '{"job_id":'  # the start of a definition that `to_dict` and compact JSON have written
_SETTERS = {each.name: getattr(JobDefinition, each.name).__set__ for each in fields(JobDefinition)}  # past `frozen`
_NAME = _SETTERS.pop("job_id")
_DECODER = json.JSONDecoder()


def read_definition(text: str) -> JobDefinition:
    """A definition from the JSON text of its `to_dict`."""
    if not text.startswith(_BEFORE + '"'):
        definition: JobDefinition = from_stored(json.loads(text), JobDefinition)
        return definition
    job_id, end = _DECODER.raw_decode(text, len(_BEFORE))
    # Not checked again: the definition was checked before it was stored.
    found = object.__new__(JobDefinition)
    _NAME(found, job_id)
    for set_field, value in _rest(text[end:]):
        set_field(found, value)
    return found


@lru_cache(maxsize=1000)
def _rest(text: str) -> tuple[tuple[Callable[[JobDefinition, Any], None], Any], ...]:
    """The values of all other fields, each with the function that sets it."""
    like: JobDefinition = from_stored(json.loads(f'{_BEFORE}"any"{text}'), JobDefinition)
    return tuple((set_field, getattr(like, name)) for name, set_field in _SETTERS.items())
