"""Names of 200 characters, whatever their size in bytes, are stored and found. Rules: ID-1."""

from __future__ import annotations

import random
from datetime import timedelta

from rota import Event, JobDefinition, OnEvent
from rota.backend import EventLimits, Registration
from rota.model.ids import new_run_id
from rota_backends.postgres import PostgresBackend
from tests.postgres.driving import claim, sql
from tests.postgres.every_verb import use_every_verb
from tests.servers import SCHEMA

_MOST_OF_AN_INDEX_ROW = 2704  # bytes: PostgreSQL refuses more
_LIMITS = EventLimits(timedelta(hours=1), 100, 16)


def _longest_name(seed: int = 0) -> str:
    """200 characters of four bytes each, in no order: index entries are compressed if they repeat themselves."""
    return "".join(chr(random.Random(f"{seed} {n}").randrange(0x20000, 0x2A6DF)) for n in range(199)) + "🦊"


async def test_the_longest_names_of_the_widest_characters_work_in_every_field(backend: PostgresBackend) -> None:
    name = _longest_name()
    assert len(name.encode()) == 800
    await use_every_verb(backend, name)


async def test_two_subjects_of_one_kind_of_event_are_told_apart(backend: PostgresBackend) -> None:
    """The index holds a digest of the subject; the subject itself decides."""
    subjects = [_longest_name(1), _longest_name(2)]
    jobs = [JobDefinition(f"job {n}", "ok", OnEvent("shop", "Ordered", each)) for n, each in enumerate(subjects)]
    for job in jobs:
        await backend.register(Registration(job, 0, new_run_id()))
    (runs,) = await backend.notify([Event("shop", "Ordered", subject=subjects[0])], _LIMITS)
    assert len(runs) == 1
    assert [each.key.job_id for each in (await claim(backend)).claims] == ["job 0"]


async def test_no_index_can_grow_over_what_a_row_of_it_may_hold(backend: PostgresBackend) -> None:
    """Counted with 800 bytes for each text column; the key of an event also has the scope of the event."""
    found = await sql(
        "SELECT i.indexrelid::regclass::text AS name, sum(CASE a.atttypid::regtype::text "
        "WHEN 'text' THEN CASE c.relname || '.' || a.attname WHEN 'held_key_pkey.name' THEN 1601 "
        "WHEN 'held_key_pkey.kind' THEN 16 ELSE 800 END ELSE 16 END + 8) AS size "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = i.indexrelid "
        "WHERE c.relnamespace = $1::text::regnamespace GROUP BY i.indexrelid, c.relname ORDER BY 2 DESC",
        f'"{SCHEMA}"',
    )
    assert found
    assert not [row["name"] for row in found if row["size"] > _MOST_OF_AN_INDEX_ROW]
