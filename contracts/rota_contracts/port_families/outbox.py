"""The outbox: facts that the event store and the admins are not yet told, and the one node that relays them."""

from __future__ import annotations

from typing import Any

from rota.backend import FACTS_WANTED, RELAY_LEASE, Audience, Fact, FailedDelivery
from rota.backend.messages import FactKind
from rota_contracts.clause import clause
from rota_contracts.port import Port

_VIRTUAL = ("virtual", "step")
_BEYOND_THE_LEASE = RELAY_LEASE.total_seconds() + 1


async def _given(port: Port, node: str = "one", audience: Audience = Audience.ADMINS, **asked: Any) -> list[Fact]:
    facts = await port.backend.outbox(audience, node, **asked)
    assert facts is not None, f"the outbox gave None to {node!r}: None means that another node relays"
    return facts


async def _two_letters(port: Port) -> None:
    """A dead letter of the job `a`, then one of `b`."""
    for job_id in ("a", "b"):
        await port.die(await port.register(job_id))


def _jobs(facts: list[Fact]) -> list[str]:
    return [fact.key.job_id for fact in facts]


class OutboxClauses:
    """RETRY-5, HIST-3, HIST-4: what the outbox gives, and what it deletes."""

    @clause("RETRY-5", "the admins are told of each dead letter once, in order, whether facts are wanted or not")
    async def test_each_letter_is_one_fact_for_the_admins(self, port: Port) -> None:
        await _two_letters(port)
        facts = await _given(port)
        assert [(fact.key.job_id, fact.kind) for fact in facts] == [
            ("a", FactKind.DEAD_LETTERED),
            ("b", FactKind.DEAD_LETTERED),
        ]
        assert facts[0].seq < facts[1].seq
        assert (await port.backend.census()).unnoticed_since == facts[0].occurred_at

    @clause("HIST-4", "delivered facts are deleted, once however often it is said; the others stay")
    async def test_delivered_facts_are_deleted(self, port: Port) -> None:
        await _two_letters(port)
        a, b = await _given(port)
        for _ in range(2):
            assert _jobs(await _given(port, done=[a.seq])) == ["b"]
        assert await _given(port, done=[b.seq]) == []
        assert (await port.backend.census()).unnoticed_since is None

    @clause("HIST-4", "facts of skipped jobs are left out, and a page holds no more than its limit")
    async def test_skipped_jobs_are_left_out_of_a_page(self, port: Port) -> None:
        await _two_letters(port)
        a, _ = await _given(port)
        assert _jobs(await _given(port, skip=[a.key])) == ["b"]
        assert _jobs(await _given(port, limit=1)) == ["a"]
        assert _jobs(await _given(port)) == ["a", "b"], "a skipped fact is not deleted"

    @clause("HIST-4", "facts that could not be delivered are set aside and counted, once however often it is said")
    async def test_failed_facts_are_set_aside_and_counted(self, port: Port) -> None:
        await _two_letters(port)
        a, b = await _given(port)
        for _ in range(2):
            assert _jobs(await _given(port, failed=[FailedDelivery(a.seq, "OSError")])) == ["b"]
        census = await port.backend.census()
        assert (census.set_aside, census.unnoticed_since) == (1, b.occurred_at)

    @clause("HIST-3", "facts for the event store are recorded once they are wanted, in order")
    async def test_facts_are_recorded_once_they_are_wanted(self, port: Port) -> None:
        await port.register("before")
        assert await _given(port, audience=Audience.EVENTS) == []
        await port.backend.setting(FACTS_WANTED, 0, 1)
        await port.succeed(await port.register("after"))
        facts = await _given(port, audience=Audience.EVENTS)
        assert [fact.kind for fact in facts] == [FactKind.REGISTERED, FactKind.TRIGGERED, FactKind.SUCCEEDED]
        assert set(_jobs(facts)) == {"after"}


class RelayClauses:
    """HIST-4: one node at a time relays to an audience."""

    @clause("HIST-4", "other nodes get nothing and change nothing while one relays; a node that leaves yields")
    async def test_one_node_relays_until_it_leaves(self, port: Port) -> None:
        await _two_letters(port)
        a, _ = await _given(port, "one")
        assert await port.backend.outbox(Audience.ADMINS, "two", done=[a.seq]) is None
        assert _jobs(await _given(port, "one")) == ["a", "b"], "a node that does not relay deleted a fact"
        await port.backend.hand_back([], leaving="one")
        assert _jobs(await _given(port, "two")) == ["a", "b"]

    @clause("HIST-4", "another node relays once the lease of the one before has ended", uses=_VIRTUAL)
    async def test_another_node_relays_after_the_lease(self, port: Port) -> None:
        await _two_letters(port)
        await _given(port, "one")
        assert await port.backend.outbox(Audience.ADMINS, "two") is None
        await port.step(seconds=_BEYOND_THE_LEASE)
        assert _jobs(await _given(port, "two")) == ["a", "b"]

    @clause("CRON-9", "a relay lease from before the clock was set back holds up no other node", uses=_VIRTUAL)
    async def test_a_relay_lease_from_before_the_clock_was_set_back_has_ended(self, port: Port) -> None:
        await _two_letters(port)
        await _given(port, "one")
        await port.step(hours=-1)
        assert _jobs(await _given(port, "two")) == ["a", "b"]

    @clause("HIST-4", "each audience has a relaying node of its own")
    async def test_each_audience_has_a_relaying_node_of_its_own(self, port: Port) -> None:
        await port.backend.setting(FACTS_WANTED, 0, 1)
        await _two_letters(port)
        assert _jobs(await _given(port, "one")) == ["a", "b"]
        assert await _given(port, "two", Audience.EVENTS) != []

    @clause("RETRY-5", "where there is no letter to tell of, no node takes the admins' relay")
    async def test_an_empty_outbox_for_the_admins_is_given_to_every_node(self, port: Port) -> None:
        assert await _given(port, "one") == []
        assert await _given(port, "two") == []


class SettingClauses:
    """EVENT-5: stored numbers, by which sweeps agree on a position."""

    @clause("EVENT-5", "a setting is changed only from the number that is expected")
    async def test_a_setting_is_changed_only_from_the_expected_number(self, port: Port) -> None:
        assert await port.backend.setting("position") == 0
        assert await port.backend.setting("position", 0, 7) == 7
        assert await port.backend.setting("position", 0, 9) == 7, "it was 7, and 0 was expected"
        assert await port.backend.setting("position", 7, 3) == 3
        assert [await port.backend.setting(name) for name in ("position", "another")] == [3, 0]
