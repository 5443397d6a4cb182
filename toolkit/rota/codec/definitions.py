"""Stored definitions, read fast: jobs that differ in nothing but their name share all that is read beside it."""

from __future__ import annotations

import json
from functools import lru_cache

from attrs import evolve

from rota.codec import from_dict
from rota.definition import JobDefinition

_BEFORE = '{"job_id":'  # how a definition begins as `to_dict` and compact JSON write it
_DECODER = json.JSONDecoder()


def read_definition(text: str) -> JobDefinition:
    """A definition from the JSON text of its `to_dict`."""
    if not text.startswith(_BEFORE + '"'):
        definition: JobDefinition = from_dict(json.loads(text), JobDefinition)
        return definition
    job_id, end = _DECODER.raw_decode(text, len(_BEFORE))
    return evolve(_like(text[end:]), job_id=job_id)


@lru_cache(maxsize=1000)
def _like(rest: str) -> JobDefinition:
    """One with everything but its own name."""
    like: JobDefinition = from_dict(json.loads(f'{_BEFORE}"any"{rest}'), JobDefinition)
    return like
