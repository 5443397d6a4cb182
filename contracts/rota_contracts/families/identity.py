"""ID-1, ID-3, ID-4: names are kept and compared exactly, the identity reaches the handler, payloads arrive as given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.definition import IdempotencyKey, ScheduleOutcome
from rota.errors import PayloadTooLarge, ScheduleError
from rota.run import Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, key, manual, on_event
from rota_contracts.scene import Scene

# Everything that stores, subjects, patterns and queries are known to stumble over.
ODD_NAMES = (
    "x'; DROP TABLE jobs;--", '"quoted"', "%", "_", "a%", "\\", "\\x00", "a.b", "a.*", ">", "*", "a/b", "a:b", "a|b",
    "a,b", " ", " a", "a ", "A", "a",
    "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}", "\N{PARTY POPPER}",
    "\N{HEBREW LETTER ALEF}\N{RIGHT-TO-LEFT MARK}1", "{0}", "$1", "?", "#", "None", "null", "0", "\N{NO-BREAK SPACE}",
    "\N{NOT SIGN}" * 200, "\N{PARTY POPPER}" * 200,
)  # fmt: skip

REFUSED = ("", "x" * 201, "a\x00b", "a\nb", "\x7f", "\x85", "\ud800", "a\u2028b", "a\u2029b")


class NameClauses:
    """ID-1."""

    @clause("ID-1", "a job id is kept as it is, whatever characters it has")
    async def test_odd_job_ids_are_kept_as_they_are(self, scene: Scene) -> None:
        async with scene.open() as node:
            for name in ODD_NAMES:
                assert await node.schedule(manual(name)) is ScheduleOutcome.REGISTERED, name
            for name in ODD_NAMES:
                assert await node.get_schedule(name) == manual(name)
            listed = [job.job_id for job in await node.list_schedules(limit=1000)]
            assert sorted(listed) == sorted(ODD_NAMES)

    @clause("ID-1", "runs of oddly named jobs reach handler, history and events under exactly that name")
    async def test_odd_job_ids_do_not_change_on_their_way_to_the_handler(self, scene: Scene) -> None:
        async with scene.open() as node:
            for name in ODD_NAMES:
                await node.schedule(manual(name))
                await node.trigger_once(name)
            await scene.settle()
            for name in ODD_NAMES:
                assert scene.journal.count(name) == 1, name
                assert [run.job_id for run in await node.get_run_history(name)] == [name]
                assert await scene.event_types(name) == ["JobRegistered", "JobTriggered", "JobSucceeded"], name

    @clause("ID-1", "a scope is kept as it is and means itself alone, never all or a pattern")
    async def test_odd_scopes_are_kept_apart(self, scene: Scene) -> None:
        scopes = [name for name in ODD_NAMES if not name.startswith("_")]
        async with scene.open() as node:
            for scope in scopes:
                await node.schedule(manual(scope_id=scope, created_by=scope))
            for scope in scopes:
                found = await node.list_schedules(scope)
                assert [(job.scope_id, job.created_by) for job in found] == [(scope, scope)]

    @clause("ID-1", "scope and job are never run together into one name")
    async def test_scope_and_job_do_not_run_together(self, scene: Scene) -> None:
        pairs = [
            ("a", "b.c"),
            ("a.b", "c"),
            ("a", "b/c"),
            ("a/b", "c"),
            ("a", "b:c"),
            ("a:b", "c"),
            ("ab", "c"),
            ("a", "bc"),
        ]
        async with scene.open() as node:
            for scope, job_id in pairs:
                outcome = await node.schedule(manual(job_id, scope_id=scope, payload=f"{scope}|{job_id}".encode()))
                assert outcome is ScheduleOutcome.REGISTERED, (scope, job_id)
                await node.trigger_once(job_id, scope_id=scope, idempotency_key=key())
            await scene.settle()
            for scope, job_id in pairs:
                payloads = [each.payload for each in scene.journal.of(job_id, scope)]
                assert payloads == [f"{scope}|{job_id}".encode()]

    @clause("ID-1", "names that differ in case, blanks or normal form are different names")
    async def test_names_that_look_alike_are_not_the_same(self, scene: Scene) -> None:
        alike = (
            "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
            "cafe\N{COMBINING ACUTE ACCENT}",
            "Cafe",
            "cafe",
            "cafe ",
            " cafe",
        )
        async with scene.open() as node:
            for name in alike:
                await node.schedule(manual(name))
            assert await node.unschedule("cafe")
            left = [job.job_id for job in await node.list_schedules()]
            assert sorted(left) == sorted(set(alike) - {"cafe"})

    @clause("ID-1", "no name is taken for a pattern: % and _ match nothing but themselves")
    async def test_a_name_is_not_a_pattern(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("abc"))
            await node.trigger_once("abc")
            for pattern in ("%", "a%", "a_c", "*", "a*", ">", "abc%", "ab"):
                assert await node.get_schedule(pattern) is None
                assert await node.status(pattern) is None
                assert await node.get_run_history(pattern) == []
                assert not await node.unschedule(pattern)
                assert await node.list_schedules(pattern) == []
            assert await node.get_schedule("abc") is not None

    @clause("ID-1", "keys are compared exactly")
    async def test_keys_that_look_alike_are_not_the_same(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            ids = [await node.trigger_once("job", idempotency_key=key(name)) for name in ODD_NAMES]
            again = [await node.trigger_once("job", idempotency_key=key(name)) for name in ODD_NAMES]
            assert len(set(ids)) == len(ODD_NAMES)
            assert again == ids

    @clause("ID-1", "queues and creators are kept as they are")
    async def test_odd_queues_and_creators_are_kept_as_they_are(self, scene: Scene) -> None:
        async with scene.open() as node:
            for position, name in enumerate(ODD_NAMES):
                await node.schedule(manual(f"job-{position}", queue=name, created_by=name))
                await node.trigger_once(f"job-{position}")
            await scene.settle()
            for position, name in enumerate(ODD_NAMES):
                seen: Any = scene.journal.last(f"job-{position}")
                assert (seen.queue, seen.access.subject) == (name, name)

    @clause(
        "ID-1",
        "a name that is empty, too long or has control characters is refused with its field, and nothing is stored",
    )
    async def test_a_refused_name_stores_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            for field in ("job_id", "scope_id", "queue", "created_by", "handler_name"):
                for name in REFUSED:
                    with pytest.raises(ScheduleError) as caught:
                        await node.schedule(manual(**{"handler" if field == "handler_name" else field: name}))
                    assert caught.value.field == field
            assert await node.list_schedules() == []
            assert await scene.events(scope_id=None) == []

    @clause("ID-1", "a key or event with a refused name is refused, with the field named")
    async def test_a_refused_key_or_event_name_starts_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            for name in REFUSED:
                with pytest.raises(ScheduleError) as caught:
                    await node.trigger_once("job", idempotency_key=IdempotencyKey(name, timedelta(days=1)))
                assert caught.value.field == "key"
                for field in ("event_id", "subject"):
                    with pytest.raises(ScheduleError) as caught:
                        await node.notify(event(**{field: name}))
                    assert caught.value.field == field
            await scene.settle()
            assert await node.get_run_history("job") == []

    @clause("ID-1", "an empty scope is refused, never taken for every scope")
    async def test_an_empty_scope_is_not_every_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            nobody: tuple[Any, ...] = ("", None)
            for scope in nobody:
                with pytest.raises(ScheduleError) as caught:
                    await node.list_schedules(scope)
                assert caught.value.field == "scope_id"
                with pytest.raises(ScheduleError):
                    await node.unschedule("job", scope_id=scope)
                with pytest.raises(ScheduleError):
                    await node.dead_letters(scope)
            assert await node.get_schedule("job") is not None


class AccessContextClauses:
    """ID-3."""

    @clause(
        "ID-3",
        "creator and scope reach the handler as a synthetic context without roles, whatever the cause",
        uses=("virtual",),
    )
    async def test_no_cause_loses_the_identity(self, scene: Scene) -> None:
        who = {"created_by": "ada", "scope_id": "tenant"}
        async with scene.open() as node:
            await node.schedule(cron("ticking", **who))
            await node.schedule(on_event("told", **who))
            await node.schedule(manual("asked", "flaky", **who))
            await node.notify(event(scope_id="tenant"))
            await node.trigger_once("asked", scope_id="tenant")
            await scene.advance(seconds=10)
            assert {each.cause for each in scene.journal} == {Cause.CRON, Cause.EVENT, Cause.MANUAL}
            assert scene.journal.count("asked", "tenant") == 2
            for each in scene.journal:
                access: Any = each.access
                assert (access.subject, access.scope_id, each.scope_id) == ("ada", "tenant", "tenant")
                assert access.synthetic
                assert access.roles == frozenset()


class PayloadClauses:
    """ID-4."""

    @clause("ID-4", "a payload over the limit is refused before anything is stored")
    async def test_a_definition_with_too_large_a_payload_is_not_stored(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(PayloadTooLarge) as caught:
                await node.schedule(manual(payload=bytes(scene.harness.max_payload + 1)))
            assert caught.value.field == "payload"
            assert await node.get_schedule("job") is None
            assert await scene.events() == []

    @clause("ID-4", "a trigger with a payload over the limit makes no run and takes no key")
    async def test_a_trigger_with_too_large_a_payload_leaves_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            too_large = bytes(scene.harness.max_payload + 1)
            with pytest.raises(PayloadTooLarge):
                await node.trigger_once("job", payload=too_large, idempotency_key=key())
            await scene.settle()
            assert await node.get_run_history("job") == []
            run = await scene.run(node, "job", payload=b"small", idempotency_key=key())
            assert run.state is RunState.SUCCEEDED

    @clause("ID-4", "payloads up to the limit arrive whole")
    async def test_payloads_up_to_the_limit_are_not_cut(self, scene: Scene) -> None:
        limit = scene.harness.max_payload
        payloads = [bytes(size % 251 for size in range(length)) for length in (0, 1, 7_900, 8_100, limit - 1, limit)]
        async with scene.open() as node:
            await node.schedule(manual(payload=payloads[-1]))
            await node.trigger_once("job")
            for payload in payloads:
                await node.trigger_once("job", payload=payload)
            await scene.settle()
            assert [each.payload == payloads[-1] for each in scene.journal][:1] == [True]
            assert [each.payload for each in scene.journal][1:] == payloads

    @clause("ID-4", "payload bytes are opaque: no byte is read, changed or dropped")
    async def test_no_byte_of_a_payload_is_changed(self, scene: Scene) -> None:
        payloads = [
            bytes(range(256)),
            b"\x00",
            b"\x00\x00a",
            b"\xff\xfe",
            b"null",
            b"\\x00",
            b"  \r\n",
            "\u2028".encode(),
        ]
        async with scene.open() as node:
            for position, payload in enumerate(payloads):
                definition = manual(f"job-{position}", payload=payload)
                await node.schedule(definition)
                assert await node.get_schedule(definition.job_id) == definition
                await node.trigger_once(definition.job_id)
            await scene.settle()
            seen = {each.job_id: each.payload for each in scene.journal}
            assert seen == {f"job-{position}": payload for position, payload in enumerate(payloads)}

    @clause("ID-4", "every attempt gets the bytes given, and so does a replay")
    async def test_a_later_attempt_gets_no_other_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", payload=b"the job's"))
            run = await scene.run(node, "job", payload=b"this run's")
            await scene.advance(seconds=20)
            await node.replay(run.run_id)
            await scene.settle()
            assert [each.payload for each in scene.journal] == [b"this run's"] * 4

    @clause("ID-4", "what an attempt does to its copy of the payload is not seen by the next")
    async def test_an_attempt_does_not_see_what_an_earlier_one_did_to_its_payload(self, scene: Scene) -> None:
        from rota.registry import HandlerRegistry

        seen: list[list[str]] = []
        registry = HandlerRegistry()

        @registry.register("mutating")
        async def mutating(ctx: Any, payload: list[str]) -> None:
            seen.append(list(payload))
            payload.append("changed")
            if ctx.attempt < 3:
                raise RuntimeError("again")

        async with scene.open(handlers=registry) as node:
            await node.schedule(manual(handler="mutating", payload=b'["as given"]'))
            await node.trigger_once("job")
            await node.trigger_once("job")
            await scene.advance(seconds=60)
            assert seen == [["as given"]] * 6

    @clause("ID-4", "the next attempt gets the same bytes on another node", level=Level.NODES)
    async def test_a_payload_does_not_change_on_its_way_to_another_node(self, scene: Scene) -> None:
        payload = bytes(range(256))
        async with scene.open() as one:
            await one.schedule(manual(handler="hold"))
            await one.trigger_once("job", payload=payload)
            await scene.settle()
            async with scene.open():
                await scene.crash(one)
                await scene.advance(seconds=31)
                assert [each.payload for each in scene.journal] == [payload, payload]
                scene.gate.open()
