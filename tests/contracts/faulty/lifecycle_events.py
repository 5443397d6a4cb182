"""Faults in lifecycle events and their delivery (HIST-3, HIST-4)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from attrs import evolve

from rota.backend import (
    RELAY_LEASE,
    Audience,
    Claimed,
    ClaimRequest,
    Fact,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    NewRun,
    Refusal,
    Registration,
)
from rota.decide import attempt as decide_attempt
from rota.events import EventStore, InMemoryEventStore, hooked
from rota.events.hooked import Listener
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota.model.run import AttemptOutcome, Cause
from rota.node import relay
from rota.node.relay import Relay
from rota.node.runtime import Runtime
from rota.scheduler import scheduler
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.outbox import Outbox
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, on, reopened, replaced


class Silent(InProcessBackend):
    """Starts are not told."""

    def _tell(self, run: Run, kind: FactKind, now: datetime) -> None:
        if kind is not FactKind.TRIGGERED:
            super()._tell(run, kind, now)


class FirstStartOnly(InProcessBackend):
    """A retry is no start."""

    def _tell(self, run: Run, kind: FactKind, now: datetime) -> None:
        if kind is not FactKind.TRIGGERED or run.attempt == 1:
            super()._tell(run, kind, now)


class NewestFirst(InProcessBackend):
    """What happened last is told first."""

    async def outbox(self, audience: Audience, node_id: str, **options: Any) -> list[Fact] | None:
        facts = await super().outbox(audience, node_id, **options)
        return facts if facts is None or audience is not Audience.EVENTS else facts[::-1]


class TellsOfItWhenItRuns(InProcessBackend):
    """A registration is told when there is something to tell of the job."""

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        records, self._records_facts = self._records_facts, False
        super()._store(lane, new, now)
        self._records_facts = records

    def _tell(self, run: Run, kind: FactKind, now: datetime) -> None:
        super()._tell(run, kind, now)
        if kind is FactKind.TRIGGERED:
            revision = run.lane.revision
            self._facts.add(Fact(next(self._order), FactKind.REGISTERED, now, run.definition, None, 0, revision))


class TellsOfCancelling(InProcessBackend):
    """A cancelled run has failed."""

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        cancelled = await super().cancel(run_id, scope_id, reason, request_id)
        if cancelled:
            self._tell(self._runs[run_id.int], FactKind.FAILED, self.clock.now())
        return cancelled


class TellsOfSkipping(InProcessBackend):
    """A skipped tick was triggered, was it not?"""

    def _fire_run(self, lane: Lane, firing: Firing, definition: JobDefinition, now: datetime) -> FireResult:
        result = super()._fire_run(lane, firing, definition, now)
        if result is FireResult.SKIPPED and firing.run_id is not None:
            run = Run(firing.run_id, lane, next(self._order), definition, definition.payload, Cause.CRON, now)
            self._tell(run, FactKind.TRIGGERED, now)
        return result


class TellsOfHandingBack(InProcessBackend):
    """What was handed back has failed."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        self._tell(run, FactKind.FAILED, now)
        super()._take_back(lane, run, now)


class TellsTooEarly(InProcessBackend):
    """Queued is as good as started."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        answer = super()._enqueue(new, now)
        if isinstance(answer, UUID) and answer.int in self._runs:
            run = self._runs[answer.int]
            run.attempt += 1
            self._tell(run, FactKind.TRIGGERED, now)
            run.attempt -= 1
        return answer


class WaitsToBeHeard(InProcessBackend):
    """Nothing starts while there are facts to tell."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        if len(self._facts._facts) > 3:
            return Claimed(now, [], self._expired(now), self._next_claimable())
        return super()._claim(request, now)


_details = Fact.details
_decide = decide_attempt.retried
_UNFAILED = {kind: evolve(row, facts=(FactKind.DEAD_LETTERED,)) for kind, row in decide_attempt._DEAD.items()}


def says(**wrong: Callable[[dict[str, Any]], Any]) -> Patch:
    """Events whose data has some fields wrong."""

    def details(self: Fact) -> dict[str, Any]:
        data = _details(self)
        return {**data, **{name: value(data) for name, value in wrong.items()}}

    return replaced(Fact, "details", details)


def _without_schedule(self: Fact) -> dict[str, Any]:
    return {name: value for name, value in _details(self).items() if name != "schedule"}


def _lost_in_silence(claim: Any, node_id: str, kind: AttemptOutcome, *rest: Any) -> Any:
    settlement = _decide(claim, node_id, kind, *rest)
    if kind is AttemptOutcome.LOST:
        settlement.facts = ()
    return settlement


def _drops(self: Relay, key: JobKey, fact: Fact, error: Exception) -> bool:
    """What the event store does not take is dropped."""
    self._done.append(fact.seq)
    return True


def _goes_on(self: Relay, key: JobKey, fact: Fact, error: Exception) -> bool:
    """One event less does not matter to the next."""
    _hold_up(self, key, fact, error)
    return True


_hold_up = Relay._delay


async def _stops_at_the_first(self: Relay, facts: list[Fact]) -> None:
    """What cannot be told holds up everything."""
    for fact in facts:
        if not await self._deliver_one(fact.key, fact):
            return


async def _stops_at_a_failing_listener(callback: Listener, event: Event) -> None:
    answer = callback(event)
    if answer is not None:
        await answer


def _loses_the_outbox(store: InProcessBackend) -> None:
    store._facts = store._outboxes[Audience.EVENTS] = Outbox()


class OneBatch(InProcessBackend):
    """Facts about jobs that are held up are given all the same."""

    async def outbox(
        self, audience: Audience, node_id: str, *, skip: Collection[JobKey] = (), **options: Any
    ) -> list[Fact] | None:
        return await super().outbox(audience, node_id, skip=(), **options)


class RelaysForTenSeconds(InProcessBackend):
    """The lease of the relay is the store's, not the node's."""

    async def outbox(self, audience: Audience, node_id: str, **options: Any) -> list[Fact] | None:
        return await super().outbox(audience, node_id, **{**options, "lease": RELAY_LEASE})


def _tells_nobody(*args: Any, events: EventStore | None, **options: Any) -> Runtime:
    """Who has no event store relays too, and forgets what it is given."""
    return Runtime(*args, events=events or InMemoryEventStore(), **options)


FAULTS = [
    Fault("starts are not told", "HIST-3", of("HIST-3", "a_success_is_told_in_order"), on(Silent)),
    Fault("only the first start is told", "HIST-3", of("HIST-3", "retries_are_told_one_by_one"), on(FirstStartOnly)),
    Fault(
        "the newest is told first",
        "HIST-3",
        of("HIST-3", "events_of_two_runs_are_not_mixed"),
        on(NewestFirst),
    ),
    Fault(
        "a registration is told when it runs",
        "HIST-3",
        of("HIST-3", "nothing_is_told_before_the_registration"),
        on(TellsOfItWhenItRuns),
    ),
    Fault(
        "a death is told without its failure",
        "HIST-3",
        of(
            "HIST-3",
            "a_dead_letter_is_not_told_without_its_failure",
            "a_lost_last_attempt_is_told_as_a_dead_letter",
        ),
        patch=replaced(decide_attempt, "_DEAD", _UNFAILED),
    ),
    Fault("cancelling is told", "HIST-3", of("HIST-3", "a_cancelled_run_is_not_told_of_again"), on(TellsOfCancelling)),
    Fault("skipping is told", "HIST-3", of("HIST-3", "nothing_is_told_of_what_did_not_run"), on(TellsOfSkipping)),
    Fault(
        "attempts are lost in silence",
        "HIST-3",
        of("HIST-3", "a_lost_attempt_is_not_passed_over"),
        patch=replaced(decide_attempt, "retried", _lost_in_silence),
    ),
    Fault("handing back is told", "HIST-3", of("HIST-3", "a_hand_back_is_not_told"), on(TellsOfHandingBack)),
    Fault(
        "the schedule is not told",
        "HIST-3",
        of("HIST-3", "no_field_is_left_out"),
        patch=replaced(Fact, "details", _without_schedule),
    ),
    Fault(
        "due is told as the start",
        "HIST-3",
        of("HIST-3", "the_data_of_a_success_is_that_of_the_run"),
        patch=says(due=lambda data: data["started_at"]),
    ),
    Fault(
        "the next attempt is not told",
        "HIST-3",
        of("HIST-3", "the_data_of_a_failure_says_when_it_goes_on"),
        patch=says(next_attempt_at=lambda data: data["started_at"]),
    ),
    Fault(
        "records are not told",
        "HIST-3",
        of("HIST-3", "the_number_of_records_is_told"),
        patch=says(records_processed=lambda data: None),
    ),
    Fault(
        "attempts share an event id",
        "HIST-3",
        of("HIST-3", "events_of_different_facts_do_not_share_an_id"),
        patch=replaced(Fact, "event_id", property(lambda fact: f"{fact.kind.value}-{fact.caused_by}")),
    ),
    Fault(
        "told before it is stored",
        "HIST-3",
        of("HIST-3", "an_event_does_not_run_ahead_of_the_store"),
        on(TellsTooEarly),
    ),
    Fault(
        "refused events are dropped",
        "HIST-4",
        of("HIST-4", "a_failing_event_store_does_not_lose_events"),
        patch=replaced(Relay, "_delay", _drops),
    ),
    Fault(
        "nothing starts until all is told",
        "HIST-4",
        of("HIST-4", "a_failing_event_store_does_not_stop_the_scheduler"),
        on(WaitsToBeHeard),
    ),
    Fault(
        "each telling has an id of its own",
        "HIST-4",
        of("HIST-4", "a_repeated_event_does_not_get_another_id"),
        patch=replaced(Fact, "event_id", property(lambda fact: str(uuid4()))),
    ),
    Fault(
        "events overtake a refused one",
        "HIST-4",
        of("HIST-4", "events_do_not_overtake_a_refused_one"),
        on(OneBatch),
        replaced(Relay, "_delay", _goes_on),
    ),
    Fault(
        "a refused event holds up everything",
        "HIST-4",
        of("HIST-4", "a_refused_event_does_not_hold_up_other_jobs"),
        on(OneBatch),
        replaced(Relay, "_deliver_each", _stops_at_the_first),
    ),
    Fault(
        "refused events are tried for ever",
        "HIST-4",
        of("HIST-4", "a_refused_event_is_not_tried_for_ever"),
        patch=replaced(relay, "_MOST_TRIES", 10**9),
    ),
    Fault(
        "the outbox is not on disk",
        "HIST-4",
        of("HIST-4", "a_restart_does_not_lose_undelivered_events"),
        reopened(_loses_the_outbox),
    ),
    Fault(
        "events go to nodes that tell nobody",
        "HIST-4",
        of("HIST-4", "a_node_without_an_event_store_does_not_swallow_events"),
        patch=replaced(scheduler, "Runtime", _tells_nobody),
    ),
    Fault(
        "a dead node relays for ten seconds whatever its lease",
        "HIST-4",
        of("HIST-4", "events_do_not_wait_for_a_dead_node_longer_than_its_lease"),
        on(RelaysForTenSeconds),
    ),
    Fault(
        "a failing listener is the last one",
        "HIST-4",
        of("HIST-4", "a_failing_listener_does_not_stop_anybody"),
        patch=replaced(hooked, "_tell", _stops_at_a_failing_listener),
    ),
]
