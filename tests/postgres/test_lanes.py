"""A lane that becomes free is put in the band of its next run. Rules: RUN-2."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import uuid4

import pytest

from rota import JobDefinition, Manual
from rota.backend import Claim, ClaimRequest, JobKey, NewRun, NodeInfo, Registration
from rota.decide.attempt import dead_lettered, retried
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause
from rota_backends.postgres import PostgresBackend
from tests.postgres.driving import LEASE, claim, register, sql, success, trigger

_numbers = count(1)


async def _define(backend: PostgresBackend, name: str, handler: str, queue: str = "default") -> None:
    standing = await backend.standing(JobKey("default", name))
    definition = JobDefinition(name, handler, Manual(), queue=queue)
    await backend.register(Registration(definition, standing.revision, uuid4()))


async def _trigger(backend: PostgresBackend, name: str, delay: timedelta | None = None, times: int = 1) -> None:
    key = JobKey("default", name)
    await backend.enqueue([NewRun(key, new_run_id(), Cause.MANUAL, 100, delay=delay) for _ in range(times)])


def _request(node: str, handlers: set[str], limit: int, queues: dict[str, int] | None = None) -> ClaimRequest:
    return ClaimRequest(node, frozenset(handlers), limit, LEASE, queues, next(_numbers))


async def _exchange(backend: PostgresBackend, ended: list[Claim], request: ClaimRequest) -> list[Claim]:
    _, claimed = await backend.settle([success(each, request.node_id) for each in ended], request)
    assert claimed is not None
    return claimed.claims


async def _alive(backend: PostgresBackend, node: str, handler: str) -> None:
    await backend.renew(NodeInfo(node, frozenset({handler}), 1, 0, "host", 1, LEASE, datetime.now(UTC)), [])


@pytest.mark.parametrize("times", [1, 5], ids=["one by one", "as a batch"])
async def test_a_run_under_another_handler_and_queue_goes_to_a_node_that_serves_them(
    backend: PostgresBackend, times: int
) -> None:
    await _alive(backend, "a", "old")
    await _define(backend, "job", "old", "here")
    await _trigger(backend, "job")
    first = await backend.claim(_request("a", {"old"}, 1, {"here": 1}))
    await _define(backend, "job", "new", "there")
    await _trigger(backend, "job", times=times)
    assert await _exchange(backend, first.claims, _request("a", {"old"}, 1, {"here": 1})) == []
    second = await backend.claim(_request("b", {"new"}, 1, {"there": 1}))
    assert [each.definition.handler_name for each in second.claims] == ["new"]


async def test_a_run_under_another_handler_does_not_wait_behind_those_of_the_old_one(backend: PostgresBackend) -> None:
    await _alive(backend, "a", "old")
    for name in ("job", *(f"other {number}" for number in range(5))):
        await _define(backend, name, "old")
        await _trigger(backend, name)
    first = await backend.claim(_request("a", {"old"}, 1))
    await _define(backend, "job", "new")
    await _trigger(backend, "job")
    await _exchange(backend, first.claims, _request("a", {"old"}, 1))
    assert len((await backend.claim(_request("b", {"new"}, 1))).claims) == 1


async def test_a_node_with_both_handlers_goes_on_at_once(backend: PostgresBackend) -> None:
    await _define(backend, "job", "old")
    await _trigger(backend, "job")
    first = await backend.claim(_request("a", {"old", "new"}, 1))
    await _define(backend, "job", "new")
    await _trigger(backend, "job")
    assert len(await _exchange(backend, first.claims, _request("a", {"old", "new"}, 1))) == 1


async def test_lanes_with_nothing_but_delayed_runs_take_no_place_of_a_claim(backend: PostgresBackend) -> None:
    names = [f"job {number}" for number in range(4)]
    for name in names:
        await _define(backend, name, "ok")
        await _trigger(backend, name)
        await _trigger(backend, name, delay=timedelta(hours=1))
    await _define(backend, "startable", "ok")
    claims = (await backend.claim(_request("a", {"ok"}, 4))).claims
    await backend.settle([success(each, "a") for each in claims])
    await _trigger(backend, "startable")
    claimed = await backend.claim(_request("a", {"ok"}, 1))
    assert [each.key.job_id for each in claimed.claims] == ["startable"]


async def test_a_trigger_beside_delayed_runs_wakes(backend: PostgresBackend) -> None:
    await _define(backend, "job", "ok")
    await _trigger(backend, "job")
    await _trigger(backend, "job", delay=timedelta(hours=1))
    claims = (await backend.claim(_request("a", {"ok"}, 1))).claims
    await backend.settle([success(each, "a") for each in claims])
    woken: list[bool] = []
    stop = backend.subscribe(lambda: woken.append(True))
    await _trigger(backend, "job")
    stop()
    assert woken


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_no_error_of_an_ended_run_stays_in_its_lane(backend: PostgresBackend, is_cancelled: bool) -> None:
    await register(backend, "a")
    await trigger(backend, "a")
    (first,) = (await claim(backend)).claims
    settled, _ = await backend.settle([retried(first, "node", AttemptOutcome.FAILED, "card 4111", timedelta(0))])
    assert settled == [True]
    if is_cancelled:
        assert await backend.cancel(first.run_id, "default", "not needed", new_run_id())
    else:
        (second,) = (await claim(backend)).claims
        await backend.settle([dead_lettered(second, "node", AttemptOutcome.FAILED, "card 4111", "exhausted")])
    (lane,) = await sql("SELECT error, earlier, stop FROM lane")
    assert dict(lane) == {"error": None, "earlier": None, "stop": None}


async def test_no_run_has_to_make_the_band_that_its_lane_comes_into(backend: PostgresBackend) -> None:
    """Two batches that made the same two bands in another order waited for each other, a second and in vain."""
    await _define(backend, "job", "old")
    await _trigger(backend, "job", times=2)
    first = await backend.claim(_request("a", {"old"}, 1))
    await _define(backend, "job", "new", "there")
    await _trigger(backend, "job")
    made = await sql("SELECT handler FROM band WHERE queue = 'there' ORDER BY handler")
    assert [row[0] for row in made] == ["new", "old"], "of those that wait and of those to come"
    second = await _exchange(backend, first.claims, _request("a", {"old", "new"}, 1))
    third = await _exchange(backend, second, _request("a", {"old", "new"}, 1))
    assert [each.definition.handler_name for each in (*second, *third)] == ["old", "new"]
    assert len(await sql("SELECT FROM band")) == 3
