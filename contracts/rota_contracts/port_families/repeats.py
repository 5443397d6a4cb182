"""Repeats of a call whose answer was lost. An application cannot make them: only the node knows the request's id."""

from __future__ import annotations

from uuid import uuid4

from rota.backend import LeaseRef, NewRun, Removal
from rota.decide.attempt import dead_lettered
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_contracts.clause import clause
from rota_contracts.port import LANE_LIMIT, LEASE, SCOPE, Port


class RepeatClauses:
    """CANCEL-1, REG-4: a repeat gives the first answer and changes nothing."""

    @clause("CANCEL-1", "a repeated cancel gives the first answer, also after the run was handed back")
    async def test_a_repeated_cancel_gives_the_first_answer_after_a_hand_back(self, port: Port) -> None:
        claim, request_id = await port.running(await port.register()), uuid4()
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", request_id) is True
        await port.backend.hand_back([LeaseRef(claim.key, claim.run_id, claim.token, LEASE)])
        assert await port.state(claim.run_id) is RunState.CANCELLED
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", request_id) is True, "a repeat"
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", uuid4()) is False, "a new request"

    @clause("CANCEL-1", "a repeated cancel gives the first answer, also after the dead letter was replayed")
    async def test_a_repeated_cancel_gives_the_first_answer_after_a_replay(self, port: Port) -> None:
        key = await port.register()
        claim, request_id = await port.running(key), uuid4()
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", request_id) is True
        await port.backend.settle([dead_lettered(claim, "one", AttemptOutcome.FAILED, "boom", "permanent")])
        await port.backend.enqueue([NewRun(key, uuid4(), Cause.REPLAY, LANE_LIMIT, replay_of=claim.run_id)])
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", request_id) is True, "a repeat"
        assert await port.backend.cancel(claim.run_id, SCOPE, "enough", uuid4()) is False, "a new request"

    @clause("REG-4", "a repeated removal gives the first answer, and one planned at an old revision is refused")
    async def test_a_repeated_removal_gives_the_first_answer(self, port: Port) -> None:
        key = await port.register()
        await port.running(key)
        old = Removal(key, 0, uuid4())
        assert await port.backend.remove(old) is False, "it was planned before the job was registered"
        removal = Removal(key, await port.revision(key), uuid4())
        assert await port.backend.remove(removal) is True
        assert await port.backend.remove(removal) is True, "a repeat"
        assert await port.backend.remove(old) is False
