"""MANUAL-1: many triggers in one call are as good as one after the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import JobNotFound, LaneFull, TriggersRefused
from rota.model.definition import TriggerOnce
from rota_contracts.clause import Level, clause
from rota_contracts.declare import key, manual
from rota_contracts.families._look import payloads
from rota_contracts.scene import Scene

_JOBS = ("one", "two", "three")


class TriggerManyClauses:
    """A batch is stored in its order, each trigger for itself."""

    @clause("MANUAL-1", "many triggers in one call are as many runs, in the order given", uses=("scheduler",))
    async def test_many_triggers_do_not_change_places(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            for job_id in _JOBS:
                await node.schedule(manual(job_id))
            many = [TriggerOnce(_JOBS[n % 3], b"%d" % n) for n in range(30)]
            run_ids = await node.trigger_many(many)
            await scene.settle()
            for number, job_id in enumerate(_JOBS):
                newest_first = [run.run_id for run in await node.get_run_history(job_id)]
                assert newest_first[::-1] == run_ids[number::3]
                assert payloads(scene, job_id) == [b"%d" % n for n in range(number, 30, 3)]

    @clause(
        "MANUAL-1", "each of many triggers has its own payload, delay, key and scope", uses=("scheduler", "virtual")
    )
    async def test_many_triggers_do_not_share_what_is_their_own(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            for scope_id in ("default", "other"):
                await node.schedule(manual("job", payload=b"the job's", scope_id=scope_id))
            minute = timedelta(minutes=1)
            first, _, again, *_ = await node.trigger_many(
                [
                    TriggerOnce("job", b"keyed", idempotency_key=key("k")),
                    TriggerOnce("job"),
                    TriggerOnce("job", b"repeated", idempotency_key=key("k")),
                    TriggerOnce("job", b"later", delay=minute),
                    TriggerOnce("job", b""),
                    TriggerOnce("job", b"elsewhere", scope_id="other"),
                ]
            )
            assert again == first
            await scene.settle()
            assert len(await node.get_run_history("job", scope_id="other")) == 1
            assert payloads(scene) == [b"keyed", b"the job's", b""]
            await scene.harness.advance(minute)
            assert payloads(scene)[-1] == b"later"

    @clause("MANUAL-1", "of many triggers those that are refused are told, the others are stored", uses=("scheduler",))
    async def test_a_refused_trigger_does_not_take_others_along(self, scene: Scene) -> None:
        async with scene.scheduler(concurrency=0, lane_limit=2) as client:
            await client.schedule(manual("job"))
            await client.schedule(manual("empty"))
            many = [TriggerOnce(name) for name in ("job", "nobody", "job", "job", "empty", "job")]
            with pytest.raises(TriggersRefused) as caught:
                await client.trigger_many(many)
            kinds = {number: type(error) for number, error in caught.value.refused.items()}
            assert kinds == {1: JobNotFound, 3: LaneFull, 5: LaneFull}
            stored = [run.run_id for name in ("job", "empty") for run in await client.get_run_history(name)]
            assert sorted(run_id for run_id in caught.value.run_ids if run_id) == sorted(stored)
            assert [number for number, run_id in enumerate(caught.value.run_ids) if run_id is None] == [1, 3, 5]

    @clause("MANUAL-1", "many triggers outlive the store's rest", level=Level.DURABLE, uses=("scheduler",))
    async def test_many_triggers_do_not_go_with_their_process(self, scene: Scene) -> None:
        async with scene.scheduler(concurrency=0) as client:
            await client.schedule(manual("job"))
            await client.trigger_many(TriggerOnce("job", b"%d" % n) for n in range(10))
        await scene.reopen()
        async with scene.open():
            await scene.settle()
            assert payloads(scene) == [b"%d" % n for n in range(10)]
