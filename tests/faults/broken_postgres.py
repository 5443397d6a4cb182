"""PostgreSQL backends that break one rule inside the store: functions of the schema with a line taken out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
from attrs import frozen

from rota.backend import ClaimRequest, Settlement
from rota.model.run import RunState
from rota_backends.postgres import PostgresBackend
from tests.faults.broken import Settled

_LATER = "CREATE TABLE later (LIKE letter)"
_FILE = """WITH moved AS (DELETE FROM rota.later WHERE run_id = ANY ($1) RETURNING *)
    INSERT INTO rota.letter SELECT * FROM moved"""


@frozen
class Edit:
    """In the source of a function, other text instead of some."""

    function: str
    old: str
    new: str


EDITS = {
    "unfenced": [Edit("_settle", "leased AND lane.token = s.token AND lane.run_id", "leased AND lane.run_id")],
    "reads-then-writes": [
        Edit("_claim", "LIMIT v_room FOR UPDATE SKIP LOCKED);", "LIMIT v_room); PERFORM pg_sleep(0.02);"),
        Edit("_hand_over", "NOT l.leased AND l.is_open AND l.place = p_band AND l.ready_at <= p_at AND (", "("),
        Edit("_hand_over", "FROM c WHERE lane.ctid = c.row", "FROM c WHERE lane.id = c.lane"),
    ],
    "letters-later": [Edit("_settle", "INSERT INTO letter (", "INSERT INTO later (")],
    "no-occurrence-key": [
        Edit("_fire", "OR j.revision <> p_revision OR j.next_due IS DISTINCT FROM p_expected", ""),
    ],
}


async def break_schema(url: str, broken: str) -> None:
    """Make the schema, and break it before the first node looks."""
    await PostgresBackend(url).migrate()
    connection = await asyncpg.connect(url, server_settings={"search_path": "rota"})
    try:
        if broken == "letters-later":
            await connection.execute(_LATER)
        for edit in EDITS.get(broken, ()):
            await _apply(edit, connection)
    finally:
        await connection.close()


async def _apply(edit: Edit, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    find = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE proname = $1 AND pronamespace = 'rota'::regnamespace"
    source: str = await connection.fetchval(find, edit.function)
    if edit.old not in source:
        raise ValueError(f"{edit.function} has changed: {edit.old!r} is not in it")
    await connection.execute(source.replace(edit.old, edit.new))


class LettersLater(PostgresBackend):
    """(e) The dead letter is filed in a transaction of its own, after the run's end."""

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> Settled:
        answer = await super().settle(batch, then, keep=keep)
        dead = [each.run_id for each in batch if each.state is RunState.DEAD]
        if dead:
            await asyncio.sleep(0.3)
            await self._fetch(_FILE, dead)
        return answer


CLASSES: dict[str, type[PostgresBackend]] = {"letters-later": LettersLater}
