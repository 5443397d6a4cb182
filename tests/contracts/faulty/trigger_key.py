"""KEY-4: triggers whose keys are ignored, shared or taken too soon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from rota.backend import NewRun, Refusal, Settlement
from rota.model.run import RunState
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty.base import Fault, of, on, reopened
from tests.contracts.faulty.key import RenamedKeys, with_keys, without_keys


class IgnoresTriggerKeys(InProcessBackend):
    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        new.idempotency_key = None
        return super()._enqueue(new, now)


class SharesTheBook(InProcessBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._trigger_keys = self._registration_keys


class LooksThenInserts(InProcessBackend):
    """Two statements, and a network between them."""

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        now = self.clock.now()
        for new in batch:
            key, new.idempotency_key = new.idempotency_key, None
            if key is None:
                continue
            holder = self._trigger_keys.holder((*new.key, key.key), now)
            if isinstance(holder, UUID):
                return [holder]
            await asyncio.sleep(0)
            self._trigger_keys.take((*new.key, key.key), new.run_id, now + key.ttl)
        return await super().enqueue(batch, within=within)


class KeyBlocksItsOwnRetry(InProcessBackend):
    """A retry is a trigger like any other, and its key is taken."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if new.state is RunState.RETRYING and any(held[0] == new.run_id for held in self._trigger_keys._held.values()):
            new.state, new.reason = RunState.CANCELLED, "duplicate"
        return super()._settle(new, now, keep)


class KeyBeforeJob(InProcessBackend):
    """Looks at the key, takes it, and then finds that there is no such job."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        key, new.idempotency_key = new.idempotency_key, None
        if key is None:
            return super()._enqueue(new, now)
        holder = self._trigger_keys.holder((*new.key, key.key), now)
        if isinstance(holder, UUID):
            return holder
        self._trigger_keys.take((*new.key, key.key), new.run_id, now + key.ttl)
        return super()._enqueue(new, now)


class TakesItsOwnKeyAgain(InProcessBackend):
    """A key that the run itself holds is as good as one it has just taken."""

    def _known(self, new: NewRun, now: datetime) -> UUID | Refusal | None:
        known = super()._known(new, now)
        return None if known == new.run_id and new.run_id.int not in self._runs else known


FAULTS = [
    Fault(
        "trigger keys are ignored",
        "KEY-4",
        of("KEY-4", "test_a_repeated_trigger_starts_nothing", "test_a_repeated_trigger_does_not_change_the_first"),
        on(IgnoresTriggerKeys),
    ),
    Fault(
        "keys are looked at and then taken",
        "KEY-4",
        of("KEY-4", "test_one_key_does_not_make_two_runs_at_once", "test_one_key_does_not_make_two_runs_on_two_nodes"),
        on(LooksThenInserts),
    ),
    Fault(
        "triggers and registrations share their keys",
        "KEY-4",
        of("KEY-4", "test_a_registration_key_does_not_take_a_trigger_key"),
        on(SharesTheBook),
    ),
    Fault(
        "a job has one key",
        "KEY-4",
        of("KEY-4", "test_another_key_is_another_run"),
        on(with_keys(lambda backend: RenamedKeys(lambda key: key[:2]))),
    ),
    Fault(
        "the key is looked at before the job",
        "KEY-4",
        of(
            "KEY-4",
            "test_a_taken_key_does_not_hide_that_the_job_is_gone",
            "test_a_trigger_of_an_unknown_job_takes_no_key",
            "test_a_trigger_refused_by_a_full_lane_takes_no_key",
        ),
        on(KeyBeforeJob),
    ),
    Fault(
        "a key blocks the run's own retry",
        "KEY-4",
        of("KEY-4", "test_a_key_does_not_block_its_own_retry"),
        on(KeyBlocksItsOwnRetry),
    ),
    Fault(
        "a repeat takes its own key again",
        "KEY-4",
        of("KEY-4", "test_a_lost_answer_does_not_make_a_second_run"),
        on(TakesItsOwnKeyAgain),
    ),
    Fault(
        "trigger keys are lost when reopened",
        "KEY-4",
        of("KEY-4", "test_reopening_does_not_free_a_trigger_key"),
        reopened(without_keys("_trigger_keys")),
    ),
]
