"""Faults of durable stores: what they lose when they are opened again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from attrs import evolve

from rota.cron import Cron
from rota.decide import occurrence
from rota.model.run import RunState
from rota_backends.inprocess.keys import Keys
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Kept, reopened, replaced


def _lanes(store: Kept) -> Iterator[Lane]:
    """Every lane, looked at again once it was changed."""
    for lane in store._lanes.values():
        yield lane
        store._refresh(lane, store.clock.now())


def _heads(store: Kept, state: RunState) -> Iterator[tuple[Lane, Run]]:
    for lane in _lanes(store):
        if lane.head is not None and lane.head.state is state:
            yield lane, lane.head


def _loses_queued(store: Kept) -> None:
    for lane in _lanes(store):
        lane.waiting = lane.bucket = None


def _loses_running(store: Kept) -> None:
    for lane, _ in _heads(store, RunState.RUNNING):
        lane.head, lane.leased = None, False
        store._leased.pop(lane, None)


def _ends_leases(store: Kept) -> None:
    store._leases_hold_until = store.clock.now()
    for lane, _ in _heads(store, RunState.RUNNING):
        lane.lease_until = store.clock.now()


def _retries_at_once(store: Kept) -> None:
    for _, run in _heads(store, RunState.RETRYING):
        run.start_at = store.clock.now()


def _loses_delays(store: Kept) -> None:
    for lane in _lanes(store):
        lane.delayed = [(store.clock.now(), seq, run) for _, seq, run in lane.delayed or ()]


def _resets_tokens(store: Kept) -> None:
    for lane in _lanes(store):
        lane.token = 0


def _loses_letters(store: Kept) -> None:
    store._letters.clear()


def _changes_definitions(store: Kept) -> None:
    for lane in _lanes(store):
        if lane.definition is not None:
            lane.definition = evolve(lane.definition, timeout=None)


def _frees_keys(store: Kept) -> None:
    store._registration_keys, store._trigger_keys = Keys(), Keys()


def _loses_marks(store: Kept) -> None:
    for lane in _lanes(store):
        lane.decided = None


def _loses_events(store: Kept) -> None:
    store._event_keys = Keys()
    store._runs.clear()


def _resumes(store: Kept) -> None:
    for lane in _lanes(store):
        lane.paused = None


def _revives(store: Kept) -> None:
    for run in store._runs.values():
        if run.state is RunState.CANCELLED:
            run.state = RunState.QUEUED
            run.lane.add(run)
            store._refresh(run.lane, store.clock.now())


def _loses_history(store: Kept) -> None:
    for lane in _lanes(store):
        lane.history = None


def _loses_last_times(store: Kept) -> None:
    for lane in _lanes(store):
        lane.last_success_at = None


def _loses_facts(store: Any) -> None:
    store._facts._facts.clear()


def _one_by_one(cron: Cron, first: datetime, now: datetime) -> tuple[datetime, int, datetime]:
    return first, 1, cron.next_after(first)


FAULTS = [
    Fault("a restart loses queued runs", "LEASE-5", of(
        "LEASE-5", "a_restart_does_not_lose_queued_runs",
    ), reopened(_loses_queued)),
    Fault("a restart loses running runs", "LEASE-5", of(
        "LEASE-5", "a_restart_does_not_lose_a_running_run",
    ), reopened(_loses_running)),
    Fault("a restart ends every lease", "LEASE-3", of(
        "LEASE-3", "a_restart_does_not_end_a_lease",
    ), reopened(_ends_leases)),
    Fault("a restart retries at once", "RETRY-2", of(
        "RETRY-2", "a_restart_does_not_lose_a_retry",
    ), reopened(_retries_at_once)),
    Fault("a restart loses delays", "MANUAL-2", of(
        "MANUAL-2", "a_restart_does_not_start_a_delayed_run",
    ), reopened(_loses_delays)),
    Fault("a restart resets tokens", "LEASE-1", of(
        "LEASE-1", "a_restart_does_not_reset_tokens",
    ), reopened(_resets_tokens)),
    Fault("a restart loses dead letters", "RETRY-5", of(
        "RETRY-5", "a_restart_does_not_lose_dead_letters",
    ), reopened(_loses_letters)),
    Fault("a restart loses part of a definition", "REG-1", of(
        "REG-1", "a_restart_does_not_change_a_definition",
    ), reopened(_changes_definitions)),
    Fault("a restart frees keys", "KEY-2", of("KEY-2", "a_restart_does_not_free_keys"), reopened(_frees_keys)),
    Fault("a restart loses the marks", "CRON-4", of(
        "CRON-4", "a_restart_does_not_forget_what_was_decided",
    ), reopened(_loses_marks)),
    Fault("a restart makes up every tick", "CRON-7", of(
        "CRON-7", "a_restart_does_not_replay_every_missed_tick",
    ), reopened(), replaced(occurrence, "owed", _one_by_one)),
    Fault("a restart forgets events", "EVENT-3", of(
        "EVENT-3", "a_restart_does_not_forget_events",
    ), reopened(_loses_events)),
    Fault("a restart resumes every job", "PAUSE-1", of(
        "PAUSE-1", "a_restart_does_not_resume_a_job",
    ), reopened(_resumes)),
    Fault("a restart revives cancelled runs", "CANCEL-1", of(
        "CANCEL-1", "a_restart_does_not_revive_a_cancelled_run",
    ), reopened(_revives)),
    Fault("a restart loses history", "HIST-1", of(
        "HIST-1", "a_restart_does_not_rewrite_history",
    ), reopened(_loses_history)),
    Fault("a restart loses the last times", "HIST-1", of(
        "HIST-1", "a_restart_does_not_rewrite_history",
    ), reopened(_loses_last_times)),
    Fault("a restart loses untold events", "HIST-3", of(
        "HIST-3", "a_restart_does_not_lose_lifecycle_events",
    ), reopened(_loses_facts)),
]  # fmt: skip
