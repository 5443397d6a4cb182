"""Faults in claims, tokens and leases (LEASE-1 to LEASE-3, LEASE-6, RUN-3)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import (
    Claim,
    ClaimRequest,
    FactKind,
    JobKey,
    JobRecord,
    LeaseRef,
    NodeInfo,
    Registration,
    Renewal,
    RunQuery,
    Settlement,
)
from rota.decide import attempt as decide_attempt
from rota.decide.attempt import Lost
from rota.model.run import AttemptOutcome, JobRun
from rota.node.attempt import RunningAttempt
from rota.node.slots import Node
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, on, replaced

_A_DAY = timedelta(days=1)
_why_final = decide_attempt._final_reason
_init = Node.__init__


class ShownAsWaiting(InProcessBackend):
    """A run that was claimed is still queued, for who looks."""

    async def standing(self, key: JobKey) -> JobRecord:
        standing = await super().standing(key)
        job = standing.job
        if job is None or job.running is None:
            return standing
        return evolve(standing, job=evolve(job, running=None, queued=job.queued + 1))


class RetriesKeepTheirToken(InProcessBackend):
    """One token per run, not per claim."""

    def _hand_over(self, lane: Lane, request: ClaimRequest, now: datetime) -> Claim:
        if lane.head is not None:
            lane.token -= 1
        return super()._hand_over(lane, request, now)


class TokensGoWithTheJob(InProcessBackend):
    """A job that is registered again counts its tokens anew."""

    def _register(self, new: Registration, now: datetime) -> Any:
        lane = self._lanes.get(new.key)
        if lane is not None and lane.definition is None:
            lane.token = 0
        return super()._register(new, now)


class HandBackReturnsTheToken(InProcessBackend):
    """What was handed back can be handed out again."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        super()._take_back(lane, run, now)
        lane.token -= 1


class OtherTokensInHistory(InProcessBackend):
    """History numbers tokens on its own."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return [
            evolve(run, attempts=tuple(evolve(each, fencing_token=each.number + 100) for each in run.attempts))
            for run in await super().runs(query)
        ]


def _settling(wrong: Callable[[InProcessBackend, Lane, Settlement, datetime], Settlement | None]) -> MakeHarness:
    """Settlements are changed before they are looked at; None refuses them."""

    class Settles(InProcessBackend):
        def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
            changed = wrong(self, self._lanes[new.key], new, now)
            return False if changed is None else super()._settle(changed, now, keep)

    return on(Settles)


def _of_the_run(store: InProcessBackend, lane: Lane, new: Settlement, now: datetime) -> Settlement:
    return evolve(new, token=lane.token)


def _of_the_job(store: InProcessBackend, lane: Lane, new: Settlement, now: datetime) -> Settlement:
    return new if lane.head is None else evolve(new, token=lane.token, run_id=lane.head.run_id)


def _losses_are_quiet(store: InProcessBackend, lane: Lane, new: Settlement, now: datetime) -> Settlement:
    return evolve(new, facts=()) if new.outcome is AttemptOutcome.LOST else new


class TheLastWordCounts(InProcessBackend):
    """A finished run can be finished again."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if super()._settle(new, now, keep):
            return True
        run = self._runs[new.run_id.int]
        if run.state.is_final:
            run.state, run.records = new.state, new.records_processed
            self._tell(run, FactKind.SUCCEEDED, now)
        return run.state.is_final


class LossesLeaveNoTrace(InProcessBackend):
    """An attempt lost with its node is not in history."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        settled = super()._settle(new, now, keep)
        if settled and new.outcome is AttemptOutcome.LOST:
            run = self._runs[new.run_id.int]
            run.attempts = run.attempts[:-1]
        return settled


class NothingIsRenewed(InProcessBackend):
    """Leases end when they end."""

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        return await super().renew(node, [ref._replace(lease=timedelta(0)) for ref in leases])


def _is_late(lane: Lane, now: datetime) -> bool:
    return lane.leased and lane.lease_until is not None and lane.lease_until <= now


class LateRenewalsAreLost(InProcessBackend):
    """An expired lease cannot be renewed."""

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        now = self.clock.now()
        late = [ref for ref in leases if _is_late(self._lanes[ref.key], now)]
        renewal = await super().renew(node, [ref for ref in leases if ref not in late])
        renewal.lost += late
        renewal.orphans = []
        return renewal


class ExpiredIsOver(InProcessBackend):
    """Who comes late neither settles nor renews."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        is_late = _is_late(self._lanes[new.key], now)
        return False if is_late and not new.only_if_expired else super()._settle(new, now, keep)

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        now, nothing = self.clock.now(), timedelta(0)
        late = [ref._replace(lease=nothing) if _is_late(self._lanes[ref.key], now) else ref for ref in leases]
        return await super().renew(node, late)


class NobodyIsRescued(InProcessBackend):
    """A lease that ended is nobody's business."""

    def _expired(self, now: datetime) -> list[Claim]:
        return []


class Impatient(InProcessBackend):
    """Leases are taken over as soon as another node looks."""

    def _expired(self, now: datetime) -> list[Claim]:
        return super()._expired(now + _A_DAY)

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        return super()._settle(evolve(new, only_if_expired=False), now, keep)


def _named_after_the_host(node: Node, *args: Any, **options: Any) -> None:
    _init(node, *args, **{**options, "node_id": socket.gethostname()})


async def _extends_nothing(node: Node, held: RunningAttempt, delta: timedelta) -> None:
    return None


def _survives_losses(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return None if isinstance(outcome, Lost) else _why_final(claim, outcome, now)


FAULTS = [
    Fault("a claimed run is shown as waiting", "LEASE-1", of(
        "LEASE-1", "a_claimed_run_is_not_shown_as_waiting",
    ), on(ShownAsWaiting)),
    Fault("a retry keeps its token", "LEASE-1", of(
        "LEASE-1", "a_token_does_not_repeat",
    ), on(RetriesKeepTheirToken)),
    Fault("tokens start again with the job", "LEASE-1", of(
        "LEASE-1", "a_token_does_not_start_again_with_the_job",
    ), on(TokensGoWithTheJob)),
    Fault("a hand-back returns its token", "LEASE-1", of(
        "LEASE-1", "a_token_does_not_repeat_after_a_hand_back",
    ), on(HandBackReturnsTheToken)),
    Fault("history has tokens of its own", "LEASE-1", of(
        "LEASE-1", "history_does_not_name_another_token",
    ), on(OtherTokensInHistory)),
    Fault("a settlement is matched by its run", "LEASE-1", of(
        "LEASE-1", "a_zombie_does_not_settle_the_run_of_its_heir",
    ), _settling(_of_the_run)),
    Fault("a settlement is matched by its job", "LEASE-1", of(
        "LEASE-1", "a_zombie_does_not_free_the_lane_of_a_later_run",
    ), _settling(_of_the_job)),
    Fault("the last word counts", "RUN-3", of(
        "RUN-3", "a_late_outcome_does_not_change_a_finished_run",
    ), on(TheLastWordCounts)),
    Fault("an expired lease cannot settle", "LEASE-1", of(
        "LEASE-1", "a_late_node_does_not_lose_what_nobody_took",
    ), on(ExpiredIsOver)),
    Fault("an expired lease cannot be renewed", "LEASE-1", of(
        "LEASE-1", "a_late_node_goes_on_with_what_nobody_took",
    ), on(LateRenewalsAreLost)),
    Fault("leases are not renewed", "LEASE-2", of(
        "LEASE-2", "a_long_handler_is_not_started_again",
    ) + of("RUN-5", "a_blocking_sync_handler_does_not_lose_its_lease")
      + of("OPS-2", "a_short_outage_does_not_start_a_run_twice"), on(NothingIsRenewed)),
    Fault("a body does not hear of its lost lease", "LEASE-2", of(
        "LEASE-2", "a_lost_lease_does_not_leave_its_handler_running", "a_handler_does_not_go_on_without_its_lease",
    ), patch=replaced(Node, "lose", lambda node, held: None)),
    Fault("extend_lease does nothing", "LEASE-2", of(
        "LEASE-2", "an_extended_lease_is_not_taken_over_early", "a_lease_extended_in_a_thread_is_not_taken_over_early",
    ), patch=replaced(Node, "extend_lease", _extends_nothing)),
    Fault("nodes are called after their host", "LEASE-6", of(
        "LEASE-6", "a_node_id_does_not_come_back",
    ), patch=replaced(Node, "__init__", _named_after_the_host)),
    Fault("nobody takes over from the dead", "LEASE-3", of(
        "LEASE-3", "a_dead_nodes_run_waits_for_its_lease_and_no_longer",
    ), on(NobodyIsRescued)),
    Fault("leases are taken over before they end", "LEASE-3", of(
        "LEASE-3", "a_dead_nodes_run_waits_for_its_lease_and_no_longer", "a_crash_does_not_touch_other_nodes_runs",
    ), on(Impatient)),
    Fault("a lost attempt is not recorded", "LEASE-3", of(
        "LEASE-3", "a_lost_attempt_is_not_left_open",
    ), on(LossesLeaveNoTrace)),
    Fault("a lost attempt is not told", "LEASE-3", of(
        "LEASE-3", "a_lost_attempt_is_not_kept_quiet",
    ), _settling(_losses_are_quiet)),
    Fault("a run may be lost for ever", "LEASE-3", of(
        "LEASE-3", "a_run_that_kills_nodes_does_not_go_round_for_ever",
    ), patch=replaced(decide_attempt, "_final_reason", _survives_losses)),
]  # fmt: skip
