"""A definition read the fast way is the one that was written. Rules: REG-1."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import Cron, JobDefinition, Manual, OnEvent, RetryPolicy, ScheduleError
from rota.codec import from_dict, to_dict
from rota.codec.definitions import read_definition

_NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name.strip() == name and name.isprintable())
_DEFINITIONS = st.builds(
    JobDefinition,
    job_id=_NAMES | st.sampled_from(['"', "\\", '\\"', "ключ", "🐌", '","x":"', "{}"]),
    handler_name=st.sampled_from(["h", 'say "hi"']),
    trigger=st.sampled_from([Manual(), Cron("0 8 * * *", tz="Europe/Berlin"), OnEvent("orders", "OrderPlaced")]),
    retry=st.sampled_from([RetryPolicy(), RetryPolicy.fixed(1), RetryPolicy.single_attempt()]),
    payload=st.binary(max_size=5),
    priority=st.integers(-5, 5),
)


@given(_DEFINITIONS, st.booleans(), st.booleans())
def test_it_is_what_was_written(definition: JobDefinition, is_compact: bool, is_ascii: bool) -> None:
    separators = (",", ":") if is_compact else None
    text = json.dumps(to_dict(definition), ensure_ascii=is_ascii, separators=separators)
    read = read_definition(text)
    assert read == definition == from_dict(json.loads(text), JobDefinition)


@pytest.mark.parametrize("text", ["", "{}", '{"job_id":"a', '{"job_id":"a"}', '{"job_id":"","handler_name":"h"}'])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises((ScheduleError, json.JSONDecodeError)):
        read_definition(text)
