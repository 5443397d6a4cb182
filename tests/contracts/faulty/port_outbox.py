"""Backends whose outbox forgets, repeats, or is given to the wrong node; and settings that are not compared."""

from __future__ import annotations

from typing import Any

from rota.backend import FACTS_WANTED, Audience, Fact, LeaseRef
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on

Facts = list[Fact] | None


class _Outbox(InProcessBackend):
    """With a hook that changes the arguments, or the answer."""

    async def outbox(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        return await self.give(audience, node_id, **asked)

    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        return await super().outbox(audience, node_id, **asked)


class TellsLettersOnlyWhereFactsAreWanted(_Outbox):
    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        facts = await super().give(audience, node_id, **asked)
        return facts if await self.setting(FACTS_WANTED) else []


class KeepsWhatIsDone(_Outbox):
    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        return await super().give(audience, node_id, **{**asked, "done": ()})


class GivesSkippedJobsToo(_Outbox):
    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        return await super().give(audience, node_id, **{**asked, "skip": ()})


class DeletesWhatFailed(_Outbox):
    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        done = [*asked.pop("done", ()), *(each.seq for each in asked.pop("failed", ()))]
        return await super().give(audience, node_id, done=done, **asked)


class RecordsUnwantedFacts(InProcessBackend):
    async def open(self) -> None:
        await super().open()
        await self.setting(FACTS_WANTED, 0, 1)


class GivesEveryNodeTheFacts(_Outbox):
    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        return await super().give(audience, "every node", **asked)


class DoesNotYieldWhenLeaving(InProcessBackend):
    async def hand_back(self, leases: Any, *, leaving: str | None = None) -> None:
        refs: list[LeaseRef] = list(leases)
        await super().hand_back(refs)


class RelaysForEver(_Outbox):
    """The first node that asks relays to both audiences for ever, also where there is nothing to tell."""

    _relaying_node: str | None = None

    async def give(self, audience: Audience, node_id: str, **asked: Any) -> Facts:
        self._relaying_node = self._relaying_node or node_id
        return await super().give(audience, node_id, **asked) if node_id == self._relaying_node else None


class SetsWithoutComparing(InProcessBackend):
    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        return await super().setting(name, await super().setting(name), value)


FAULTS = [
    Fault("letters are told only where facts are wanted", "RETRY-5", of(
        "RETRY-5", "each_letter_is_one_fact_for_the_admins",
    ), on(TellsLettersOnlyWhereFactsAreWanted)),
    Fault("delivered facts stay in the outbox", "HIST-4", of(
        "HIST-4", "delivered_facts_are_deleted",
    ), on(KeepsWhatIsDone)),
    Fault("facts of skipped jobs are given", "HIST-4", of(
        "HIST-4", "skipped_jobs_are_left_out_of_a_page",
    ), on(GivesSkippedJobsToo)),
    Fault("facts that could not be delivered are deleted", "HIST-4", of(
        "HIST-4", "failed_facts_are_set_aside_and_counted",
    ), on(DeletesWhatFailed)),
    Fault("facts are recorded though none are wanted", "HIST-3", of(
        "HIST-3", "facts_are_recorded_once_they_are_wanted",
    ), on(RecordsUnwantedFacts)),
    Fault("every node is given the facts", "HIST-4", of(
        "HIST-4", "one_node_relays_until_it_leaves", "another_node_relays_after_the_lease",
    ), on(GivesEveryNodeTheFacts)),
    Fault("a node that leaves keeps the relay", "HIST-4", of(
        "HIST-4", "one_node_relays_until_it_leaves",
    ), on(DoesNotYieldWhenLeaving)),
    Fault("the first relaying node keeps the relay for ever", "HIST-4", (
        *of("HIST-4", "another_node_relays_after_the_lease", "each_audience_has_a_relaying_node_of_its_own"),
        *of("RETRY-5", "an_empty_outbox_for_the_admins_is_given_to_every_node"),
        *of("CRON-9", "a_relay_lease_from_before_the_clock_was_set_back_has_ended"),
    ), on(RelaysForEver)),
    Fault("a setting is changed without a look at the expected number", "EVENT-5", of(
        "EVENT-5", "a_setting_is_changed_only_from_the_expected_number",
    ), on(SetsWithoutComparing)),
]  # fmt: skip
