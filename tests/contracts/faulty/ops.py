"""Faults in health, outages, secrecy and access (OPS, ACCESS)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from attrs import evolve

from rota.access import AccessContext, JobApi, Role, api
from rota.access.audit import Audit
from rota.backend import Fact, NewRun, Refusal
from rota.decide.attempt import Unprocessable
from rota.errors import PayloadTooLarge, StoreUnavailable
from rota.model.definition import JobDefinition
from rota.model.health import Health, HealthReport
from rota.model.validation import check_payload
from rota.node import executor
from rota.node.attempt import RunningAttempt
from rota.node.executor import Executor
from rota.node.loop import Loop, Turn
from rota.scheduler import triggers
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, Wrapped, nodes, on, replaced

_perform = Executor.perform
_judge = executor._outcome_of_error
_details = Fact.details
_take_turn = Loop._take_turn


class AlwaysWell(Wrapped):
    """Health is good, whatever happens."""

    async def health(self) -> HealthReport:
        return HealthReport(Health.OK, ())


class NeverWellAgain(Wrapped):
    """Who was unwell once stays it."""

    last: HealthReport | None = None

    async def health(self) -> HealthReport:
        report: HealthReport = await self.node.health()
        if self.last is None or self.last.status is Health.OK:
            self.last = report
        return self.last


async def _gives_up(loop: Loop) -> Turn:
    return Turn(False, None) if loop.failures else await _take_turn(loop)


class Silent(InProcessBackend):
    """Nodes are not woken, as on a poll-only backend."""

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class Swallows(Wrapped):
    """A trigger that the store did not take is answered as if it had."""

    async def trigger_once(self, job_id: str, **how: Any) -> UUID:
        try:
            run_id: UUID = await self.node.trigger_once(job_id, **how)
        except StoreUnavailable:
            return uuid4()
        return run_id


class NoTriggerKeys(InProcessBackend):
    """Keys of triggers are not kept."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        return super()._enqueue(evolve(new, idempotency_key=None), now)


# --- secrecy ---


async def _logs(runs: Executor, held: RunningAttempt) -> Any:
    logging.getLogger("rota").debug("running with %r", held.claim.payload)
    return await _perform(runs, held)


def _quotes(held: RunningAttempt, error: BaseException) -> Any:
    if isinstance(error, executor._PayloadNotDecoded):
        return Unprocessable("undecodable payload", f"{error} in {held.claim.payload!r}")
    return _judge(held, error)


def _tells(fact: Fact) -> dict[str, Any]:
    return {**_details(fact), "payload": fact.definition.payload.decode("latin-1")}


def _refuses_loudly(value: bytes, limit: int) -> bytes:
    try:
        return check_payload(value, limit)
    except PayloadTooLarge as error:
        error.args = (f"{error}: {value[:100]!r}",)
        raise


def _shown(definition: JobDefinition) -> str:
    return f"JobDefinition({definition.job_id!r}, payload={definition.payload!r})"


# --- access ---


async def _permits(self: JobApi, action: str, target: object, is_permitted: bool) -> None:
    return None


async def _records_nothing(audit: Audit, *entry: Any) -> None:
    return None


def _may_write(*roles: Role) -> Patch:
    return replaced(AccessContext, "may_write", property(lambda context: not context.roles.isdisjoint(roles)))


FAULTS = [
    Fault("health is always good", "OPS-1", of(
        "OPS-1", "health_is_not_good_while_the_store_is_gone", "health_does_not_pass_over_a_missing_handler",
        "health_does_not_count_on_the_dead", "health_does_not_pass_over_dead_letters",
    ), nodes(AlwaysWell)),
    Fault("health never recovers", "OPS-1", of(
        "OPS-1", "health_is_not_good_while_the_store_is_gone", "health_does_not_pass_over_a_missing_handler",
        "health_does_not_pass_over_dead_letters",
    ), nodes(NeverWellAgain)),
    Fault("a loop that failed once does nothing any more", "OPS-2", of(
        "OPS-2", "an_outage_does_not_stop_the_node", "an_outage_does_not_lose_what_is_queued",
        "an_outage_does_not_lose_an_outcome", "an_outage_does_not_lose_a_tick",
    ), on(Silent), replaced(Loop, "_take_turn", _gives_up)),
    Fault("an unreachable store swallows triggers", "OPS-2", of(
        "OPS-2", "an_outage_does_not_swallow_a_trigger",
    ), nodes(Swallows)),
    Fault("a repeated trigger runs again", "OPS-2", of(
        "OPS-2", "a_call_repeated_after_an_outage_does_not_run_twice",
    ), on(NoTriggerKeys)),
    Fault("payloads are logged", "OPS-3", of(
        "OPS-3", "a_payload_is_not_logged",
    ), patch=replaced(Executor, "perform", _logs)),
    Fault("a decode error quotes the payload", "ACCESS-2", of(
        "ACCESS-2", "a_decode_error_does_not_quote_the_payload",
    ), patch=replaced(executor, "_outcome_of_error", _quotes)),
    Fault("events carry payloads", "OPS-3", of(
        "OPS-3", "a_payload_is_not_told",
    ), patch=replaced(Fact, "details", _tells)),
    Fault("a refusal quotes the payload", "OPS-3", of(
        "OPS-3", "a_refusal_does_not_quote_the_payload",
    ), patch=replaced(triggers, "check_payload", _refuses_loudly)),
    Fault("repr shows payloads", "ACCESS-2", of(
        "ACCESS-2", "repr_does_not_show_a_payload",
    ), patch=replaced(JobDefinition, "__repr__", _shown)),
    Fault("nobody checks who writes", "ACCESS-1", of(
        "ACCESS-1", "a_denied_write_does_not_change_anything",
    ), patch=replaced(JobApi, "_permit", _permits)),
    Fault("members write too", "ACCESS-1", of(
        "ACCESS-1", "a_denied_write_does_not_change_anything",
    ), patch=_may_write(Role.OWNER, Role.ADMIN, Role.MEMBER)),
    Fault("admins may not write", "ACCESS-1", of("ACCESS-1", "a_writer_is_not_denied"), patch=_may_write(Role.OWNER)),
    Fault("nothing is audited", "ACCESS-1", of(
        "ACCESS-1", "a_denial_does_not_go_unrecorded",
    ) + of("ACCESS-2", "a_payload_is_not_revealed_without_a_trail"), patch=replaced(Audit, "record", _records_nothing)),
    Fault("a definition chooses its scope", "ACCESS-1", of(
        "ACCESS-1", "a_definition_does_not_choose_its_scope_or_creator",
    ), patch=replaced(api, "plain", lambda definition, **changes: definition)),
    Fault("an api reaches into another scope", "ACCESS-1", of(
        "ACCESS-1", "an_api_does_not_reach_another_scope",
    ), patch=replaced(JobApi, "_scope", "team")),
    Fault("an api shows payloads", "ACCESS-2", of(
        "ACCESS-2", "an_api_does_not_show_payloads", "a_redacted_definition_does_not_wipe_the_payload",
    ), patch=replaced(api, "redacted", lambda definition: definition)),
]  # fmt: skip
