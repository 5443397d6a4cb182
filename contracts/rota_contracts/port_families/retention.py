"""What `prune` forgets, and how much of it in one call."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from rota.backend import NewRun, Prune
from rota.model.definition import IdempotencyKey
from rota.model.run import Cause
from rota_contracts.clause import clause
from rota_contracts.port import LANE_LIMIT, Port

_HOUR = timedelta(hours=1)
_VIRTUAL = ("virtual", "step")


class PruneClauses:
    """HIST-2: retention in small steps."""

    @clause("HIST-2", "one call of prune forgets no more entries than its limit says", uses=_VIRTUAL)
    async def test_prune_forgets_no_more_at_a_time_than_its_limit(self, port: Port) -> None:
        many, old = await port.register("many"), await port.register("old")
        for key in (many, many, many, old, old, old):
            await port.succeed(key)
        keys = [IdempotencyKey(name, _HOUR) for name in "abc"]
        await port.backend.enqueue(
            [NewRun(many, uuid4(), Cause.MANUAL, LANE_LIMIT, delay=100 * _HOUR, idempotency_key=key) for key in keys]
        )
        await port.step(hours=2)
        await port.succeed(many)
        forgotten = [await port.backend.prune(Prune(2, _HOUR, limit=2)) for _ in range(6)]
        assert forgotten == [2, 2, 2, 2, 1, 0]

    @clause("HIST-2", "a dead letter past its own retention is forgotten in the same round", uses=_VIRTUAL)
    async def test_an_old_letter_is_not_kept_until_the_next_round(self, port: Port) -> None:
        key = await port.register()
        await port.die(key)
        await port.step(hours=2)
        while await port.backend.prune(Prune(10, _HOUR, dead_letters=_HOUR)):
            pass  # a round lasts until nothing is left to forget
        assert await port.history(key) == []

    @clause("HIST-2", "the age of a discarded dead letter counts from the end of its run", uses=_VIRTUAL)
    async def test_a_discarded_letter_is_as_old_as_the_end_of_its_run(self, port: Port) -> None:
        key = await port.register()
        letter = await port.die(key)
        await port.step(minutes=50)
        done = await port.succeed(key)
        assert await port.backend.discard(letter, "default", uuid4()), "the letter was not discarded"
        await port.step(minutes=15)
        assert await port.backend.prune(Prune(10, _HOUR)) == 1
        assert await port.history(key) == [done]
