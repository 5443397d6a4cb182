"""Every verb of the port once, with the same name in every field that takes one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota import Event, IdempotencyKey, JobDefinition, Manual, OnEvent, RunState
from rota.backend import (
    ADMINS_TOLD,
    FACTS_WANTED,
    Audience,
    Backend,
    Claim,
    ClaimRequest,
    EventLimits,
    FactKind,
    FailedDelivery,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Registration,
    Removal,
    RunQuery,
    Settlement,
)
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause

_LEASE = timedelta(seconds=30)
_LIMITS = EventLimits(timedelta(hours=1), 100, 16)


async def use_every_verb(backend: Backend, name: str) -> None:
    """Whatever the store makes of the name, it must make of it everywhere."""
    key, other = JobKey(name, name), JobKey(name, name[:-1] or "other")
    for setting in (FACTS_WANTED, ADMINS_TOLD):
        assert await backend.setting(setting, 0, 1) == 1
    await _register(backend, name)
    await _trigger(backend, key)
    await _work(backend, key)
    await _occur(backend, key)
    await _read(backend, key, other)
    await _clean_up(backend, key)


async def _register(backend: Backend, name: str) -> None:
    held = IdempotencyKey(name, timedelta(hours=1))
    for job_id, trigger in ((name, OnEvent(name, name, name)), (name[:-1] or "other", Manual())):
        job = JobDefinition(job_id, name, trigger, scope_id=name, created_by=name, queue=name)
        new = Registration(job, 0, new_run_id(), idempotency_key=held, owner=name)
        assert (await backend.register(new)).value == "stored"


async def _trigger(backend: Backend, key: JobKey) -> None:
    plain = [NewRun(key, new_run_id(), Cause.MANUAL, 100) for _ in range(6)]
    keyed = NewRun(key, new_run_id(), Cause.MANUAL, 100, idempotency_key=IdempotencyKey(key.job_id, timedelta(hours=1)))
    later = NewRun(key, new_run_id(), Cause.MANUAL, 100, delay=timedelta(hours=1))
    for batch in (plain[:1], plain[1:], [keyed], [later]):
        assert await backend.enqueue(batch) == [each.run_id for each in batch]


async def _work(backend: Backend, key: JobKey) -> None:
    """A success, a dead letter that is replayed, one that is discarded, a hand-back and a cancellation."""
    first = await _claimed(backend, key, 1)
    node = NodeInfo(key.job_id, frozenset({key.job_id}), lease=_LEASE)
    assert not (await backend.renew(node, [_lease(first)])).lost
    settled, claimed = await backend.settle([_ended(first, RunState.SUCCEEDED)], _request(key, 2), keep=2)
    assert settled == [True]
    assert claimed is not None
    (second,) = claimed.claims
    await backend.settle([_ended(second, RunState.DEAD)])
    replay = NewRun(key, new_run_id(), Cause.REPLAY, 100, replay_of=second.run_id)
    assert await backend.enqueue([replay]) == [replay.run_id]
    third = await _claimed(backend, key, 3)
    await backend.settle([_ended(third, RunState.DEAD)])
    assert await backend.discard(third.run_id, key.scope_id, new_run_id())
    fourth = await _claimed(backend, key, 4)
    await backend.hand_back([_lease(fourth)])
    assert await backend.cancel(fourth.run_id, key.scope_id, key.job_id, new_run_id())


async def _occur(backend: Backend, key: JobKey) -> None:
    event = Event(key.job_id, key.job_id, key.scope_id, b"{}", key.job_id, key.job_id)
    ((run_id,),) = await backend.notify([event], _LIMITS)
    assert await backend.notify([event], _LIMITS) == [[run_id]]
    revision, at = (await backend.standing(key)).revision, datetime(2026, 1, 1, tzinfo=UTC)
    assert await backend.pause(PauseChange(key, key.job_id, revision, at))
    due = await backend.due(10)
    assert [job.key for job in due.jobs] == [key]
    firing = Firing(key, due.jobs[0].revision, at, at, None, new_run_id(), at)
    assert (await backend.fire([firing]))[0].value == "skipped"


async def _read(backend: Backend, key: JobKey, other: JobKey) -> None:
    pages = [await backend.jobs(JobQuery(key.scope_id, owner=owner)) for owner in (None, key.job_id)]
    assert [{job.key for job in page} for page in pages] == [{key, other}] * 2
    history = await backend.runs(RunQuery(key.scope_id, key.job_id))
    assert history
    assert await backend.runs(RunQuery(key.scope_id, run_id=history[0].run_id)) == history[:1]
    await backend.runs(RunQuery(key.scope_id, key.job_id, dead_letters=True))
    assert (await backend.decisions(key))[0].run_id is not None
    for scope in (None, key.scope_id):
        assert (await backend.census(scope)).jobs == 2
    assert await backend.lock(key.job_id, key.job_id, _LEASE) is not None
    assert await backend.setting(key.job_id, 0, 7) == 7
    await backend.now()


async def _clean_up(backend: Backend, key: JobKey) -> None:
    facts = await backend.outbox(Audience.EVENTS, key.job_id)
    assert facts
    assert {fact.key for fact in facts} >= {key}
    done, aside = [fact.seq for fact in facts[1:]], [FailedDelivery(facts[0].seq, key.job_id)]
    assert await backend.outbox(Audience.EVENTS, key.job_id, done=done, failed=aside, skip=[key]) == []
    letters = await backend.outbox(Audience.ADMINS, key.job_id)
    assert [fact.key for fact in letters or ()] == [key] * 2
    await backend.prune(Prune(1, timedelta(days=1)))
    revision = (await backend.standing(key)).revision
    assert await backend.remove(Removal(key, revision, new_run_id()))
    await backend.hand_back([], leaving=key.job_id)


def _request(key: JobKey, number: int) -> ClaimRequest:
    return ClaimRequest(key.job_id, frozenset({key.job_id}), 10, _LEASE, {key.job_id: 5}, number)


async def _claimed(backend: Backend, key: JobKey, number: int) -> Claim:
    (claim,) = (await backend.claim(_request(key, number))).claims
    assert claim.key == key
    return claim


def _lease(claim: Claim) -> LeaseRef:
    return LeaseRef(claim.key, claim.run_id, claim.token, _LEASE)


def _ended(claim: Claim, state: RunState) -> Settlement:
    is_success = state is RunState.SUCCEEDED
    outcome = AttemptOutcome.SUCCEEDED if is_success else AttemptOutcome.FAILED
    facts = (FactKind.SUCCEEDED,) if is_success else (FactKind.FAILED, FactKind.DEAD_LETTERED)
    error = None if is_success else claim.key.job_id
    return Settlement(
        claim.key, claim.run_id, claim.token, claim.node_id, state, outcome, facts, error, error, claim=claim
    )
