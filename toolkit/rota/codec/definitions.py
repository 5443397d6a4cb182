"""Stored definitions, read fast: jobs that differ in nothing but their name share all that is read beside it."""

from __future__ import annotations

import json
from functools import lru_cache

from attrs import fields

from rota.codec import from_dict
from rota.definition import JobDefinition

_BEFORE = '{"job_id":'  # how a definition begins as `to_dict` and compact JSON write it
_FIELDS = tuple(each.name for each in fields(JobDefinition))
_DECODER = json.JSONDecoder()


def read_definition(text: str) -> JobDefinition:
    """A definition from the JSON text of its `to_dict`."""
    if not text.startswith(_BEFORE + '"'):
        definition: JobDefinition = from_dict(json.loads(text), JobDefinition)
        return definition
    job_id, end = _DECODER.raw_decode(text, len(_BEFORE))
    return _named(_like(text[end:]), job_id)


def _named(like: JobDefinition, job_id: str) -> JobDefinition:
    """The same under another name. Not checked again: what is stored was checked before."""
    named = object.__new__(JobDefinition)
    for name in _FIELDS:
        object.__setattr__(named, name, getattr(like, name))
    object.__setattr__(named, "job_id", job_id)
    return named


@lru_cache(maxsize=1000)
def _like(rest: str) -> JobDefinition:
    """One with everything but its own name."""
    like: JobDefinition = from_dict(json.loads(f'{_BEFORE}"any"{rest}'), JobDefinition)
    return like
