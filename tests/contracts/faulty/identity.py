"""ID-1, ID-3, ID-4: names that are folded, matched or joined, identities and payloads that get lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

from rota import codec
from rota.access import AccessContext
from rota.backend import Claim, JobKey, Registered, Registration
from rota.errors import ScheduleError
from rota.model.definition import OnEvent
from rota.model.run import Cause
from rota.model.validation import check_name, check_payload
from rota.node.context import JobContext
from rota.scheduler.triggers import Triggering
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.keys import Keys
from tests.contracts.faulty.base import Fault, everywhere, of, on, replaced, rewritten


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()


class Book(dict[Any, Any]):
    """Lanes under another key than their own."""

    def __init__(self, rule: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._rule = rule

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._rule(key), default)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._rule(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._rule(key), value)


class FoldsNames(InProcessBackend):
    """As a database with a forgiving collation does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lanes = Book(lambda key: (_folded(key[0]), _folded(key[1])))


class ShortIndex(InProcessBackend):
    """As a database does whose index rows hold 2,704 bytes, with an index over all names that match an event."""

    async def register(self, new: Registration) -> Registered:
        trigger = new.definition.trigger
        if isinstance(trigger, OnEvent):
            names = (new.key.scope_id, trigger.source_module, trigger.event_type, trigger.subject or "")
            if sum(len(name.encode()) for name in names) > 2704:
                raise ScheduleError("backend", "index row size exceeds the maximum 2704")
        return await super().register(new)


class JoinsNames(InProcessBackend):
    """As a store with one flat key does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lanes = Book(lambda key: tuple(".".join(key).split(".")))


class _Patterns(dict[Any, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        parts = [re.escape(part).replace("%", ".*").replace("_", ".") for part in key]
        found = (value for names, value in self.items() if all(map(re.fullmatch, parts, names)))
        return next(found, default)


class MatchesPatterns(InProcessBackend):
    """As a query with LIKE does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lanes = _Patterns()


class _FoldedKeys(Keys):
    def holder(self, key: Hashable, now: Any) -> object | None:
        return super().holder(_fold_all(key), now)

    def take(self, key: Hashable, holder: object, until: Any) -> None:
        super().take(_fold_all(key), holder, until)


def _fold_all(key: Any) -> Hashable:
    return tuple(_folded(part) for part in key)


class FoldsKeys(InProcessBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._trigger_keys = _FoldedKeys()


class _ChangesClaims(InProcessBackend):
    """Hands over something else than what was stored."""

    def changed(self, claim: Claim) -> None:
        raise NotImplementedError

    def _as_claim(self, *args: Any, **options: Any) -> Claim:
        claim = super()._as_claim(*args, **options)
        self.changed(claim)
        return claim


class SlugQueues(_ChangesClaims):
    def changed(self, claim: Claim) -> None:
        claim.queue = re.sub(r"\W+", "-", claim.queue)


class CutsPayloads(_ChangesClaims):
    """A notification holds 8,000 bytes."""

    def changed(self, claim: Claim) -> None:
        claim.payload = claim.payload[:8000]


class TextPayloads(_ChangesClaims):
    def changed(self, claim: Claim) -> None:
        claim.payload = claim.payload.decode("utf-8", "replace").replace("\x00", "").encode()


class RetriesWithTheJobsPayload(_ChangesClaims):
    def changed(self, claim: Claim) -> None:
        if claim.attempt > 1:
            claim.payload = claim.definition.payload


def _anything(field: str, value: object, *limit: object) -> Any:
    return value


def _unchecked(triggering: Triggering, key: JobKey) -> JobKey:
    return key


def _any_payload(value: Any, *limit: object) -> Any:
    return value


def _manual_only(ctx: JobContext) -> AccessContext:
    stored = ctx._claim.definition
    who = stored.created_by if ctx.cause is Cause.MANUAL else "system"
    return AccessContext(who, stored.scope_id, frozenset(), synthetic=True)


def _decodes_once() -> AbstractContextManager[Any]:
    kept: dict[bytes, Any] = {}
    real = codec.decoder

    def decoder(kind: Any) -> Callable[[bytes], Any]:
        decode = real(kind)
        return lambda payload: kept.setdefault(payload, decode(payload))

    return everywhere(codec.decoder, decoder)()


FAULTS = [
    Fault(
        "names are folded",
        "ID-1",
        of(
            "ID-1",
            "test_odd_job_ids_are_kept_as_they_are",
            "test_odd_job_ids_do_not_change_on_their_way_to_the_handler",
            "test_odd_scopes_are_kept_apart",
            "test_names_that_look_alike_are_not_the_same",
        ),
        on(FoldsNames),
    ),
    Fault("scope and job are joined", "ID-1", of("ID-1", "test_scope_and_job_do_not_run_together"), on(JoinsNames)),
    Fault(
        "an index is too short for long names",
        "ID-1",
        of("ID-1", "test_the_widest_names_work_in_all_fields_at_once"),
        on(ShortIndex),
    ),
    Fault("names are patterns", "ID-1", of("ID-1", "test_a_name_is_not_a_pattern"), on(MatchesPatterns)),
    Fault("keys are folded", "ID-1", of("ID-1", "test_keys_that_look_alike_are_not_the_same"), on(FoldsKeys)),
    Fault("queues are slugs", "ID-1", of("ID-1", "test_odd_queues_and_creators_are_kept_as_they_are"), on(SlugQueues)),
    Fault(
        "no name is refused",
        "ID-1",
        of(
            "ID-1",
            "test_a_refused_name_stores_nothing",
            "test_a_refused_key_or_event_name_starts_nothing",
            "test_an_empty_scope_is_not_every_scope",
            "test_no_operation_takes_what_is_not_a_name",
        ),
        patch=rewritten(check_name, _anything),
    ),
    Fault(
        "a trigger's name is not looked at",
        "ID-1",
        of("ID-1", "test_no_operation_takes_what_is_not_a_name"),
        patch=replaced(Triggering, "_checked", _unchecked),
    ),
    Fault(
        "only triggered runs have an identity",
        "ID-3",
        of("ID-3", "test_no_cause_loses_the_identity"),
        patch=replaced(JobContext, "access", property(_manual_only)),
    ),
    Fault(
        "payloads have no limit",
        "ID-4",
        of(
            "ID-4",
            "test_a_definition_with_too_large_a_payload_is_not_stored",
            "test_a_trigger_with_too_large_a_payload_leaves_nothing",
        ),
        patch=everywhere(check_payload, _any_payload),
    ),
    Fault("payloads are cut", "ID-4", of("ID-4", "test_payloads_up_to_the_limit_are_not_cut"), on(CutsPayloads)),
    Fault(
        "payloads are text",
        "ID-4",
        of("ID-4", "test_no_byte_of_a_payload_is_changed", "test_a_payload_does_not_change_on_its_way_to_another_node"),
        on(TextPayloads),
    ),
    Fault(
        "retries get the job's payload",
        "ID-4",
        of("ID-4", "test_a_later_attempt_gets_no_other_payload"),
        on(RetriesWithTheJobsPayload),
    ),
    Fault(
        "a decoded payload is kept",
        "ID-4",
        of("ID-4", "test_an_attempt_does_not_see_what_an_earlier_one_did_to_its_payload"),
        patch=_decodes_once,
    ),
]
