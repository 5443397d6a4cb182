"""ID-1, ID-3: names are kept and compared exactly, and the identity reaches the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from rota.errors import ScheduleError
from rota.model.definition import IdempotencyKey, ScheduleOutcome
from rota.model.run import Cause
from rota.protocol import JobScheduler
from rota_contracts.clause import clause
from rota_contracts.declare import cron, event, key, manual, on_event
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene

# Everything that stores, subjects, patterns and queries are known to stumble over.
ODD_NAMES = (
    "x'; DROP TABLE jobs;--", '"quoted"', "%", "_", "a%", "\\", "\\x00", "a.b", "a.*", ">", "*", "a/b", "a:b", "a|b",
    "a,b", " ", " a", "a ", "A", "a",
    "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}", "\N{PARTY POPPER}",
    "\N{HEBREW LETTER ALEF}\N{RIGHT-TO-LEFT MARK}1", "{0}", "$1", "?", "#", "None", "null", "0", "\N{NO-BREAK SPACE}",
    "\N{NOT SIGN}" * 200, "\N{PARTY POPPER}" * 200,
)  # fmt: skip

# 200 different characters of four bytes: a store that compresses names cannot make it short.
WIDEST_NAME = "".join(chr(0x20000 + 7919 * number % 42_000) for number in range(200))

REFUSED = ("", "x" * 201, "a\x00b", "a\nb", "\x7f", "\x85", "\ud800", "a\u2028b", "a\u2029b")


def _operations(node: JobScheduler, name: Any) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    """Every operation that takes a name, with the field in which it is given this one."""
    run_id = uuid4()
    return [
        ("job_id", lambda: node.unschedule(name)),
        ("scope_id", lambda: node.unschedule("job", scope_id=name)),
        ("job_id", lambda: node.trigger_once(name)),
        ("scope_id", lambda: node.trigger_once("job", scope_id=name)),
        ("job_id", lambda: node.get_schedule(name)),
        ("scope_id", lambda: node.list_schedules(name)),
        ("after", lambda: node.list_schedules(after=name)),
        ("job_id", lambda: node.get_run_history(name)),
        ("scope_id", lambda: node.get_run(run_id, scope_id=name)),
        ("job_id", lambda: node.status(name)),
        ("job_id", lambda: node.pause(name, reason="test")),
        ("job_id", lambda: node.resume(name)),
        ("scope_id", lambda: node.cancel(run_id, scope_id=name)),
        ("scope_id", lambda: node.dead_letters(name)),
        ("scope_id", lambda: node.replay(run_id, scope_id=name)),
        ("scope_id", lambda: node.discard(run_id, scope_id=name)),
    ]


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
                assert await told(scene, 3, name) == ["JobRegistered", "JobTriggered", "JobSucceeded"], name

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

    @clause("ID-1", "names of 200 characters of four bytes each work in all fields of a job and its event at once")
    async def test_the_widest_names_work_in_all_fields_at_once(self, scene: Scene) -> None:
        name = WIDEST_NAME
        names = {"module": name, "subject": name, "scope_id": name, "queue": name, "created_by": name}
        async with scene.open() as node:
            job = on_event(name, name, idempotency_key=key(name), **names)
            assert await node.schedule(job) is ScheduleOutcome.REGISTERED
            written = event(name, module=name, subject=name, scope_id=name, event_id=name)
            triggered = await node.trigger_once(name, scope_id=name, idempotency_key=key(name))
            heard = await node.notify(written)
            await scene.settle()
            assert heard == await node.notify(written)
            runs = [run.run_id for run in await node.get_run_history(name, scope_id=name)]
            assert sorted(runs) == sorted([triggered, *heard])
            assert await node.unschedule(name, scope_id=name)

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

    @clause("ID-1", "every operation refuses an impossible name and names the field; no other call suffers")
    async def test_no_operation_takes_what_is_not_a_name(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            odd: list[Any] = [*REFUSED, 7, None, ["job"]]
            for name in odd:
                for field, call in _operations(node, name):
                    if (field, name) == ("after", None):
                        continue
                    with pytest.raises(ScheduleError) as caught:
                        await call()
                    assert caught.value.field == field
            together = await asyncio.gather(
                *(node.trigger_once(each) for name in odd for each in ("job", name)), return_exceptions=True
            )
            assert all(isinstance(answer, ScheduleError) for answer in together[1::2])
            assert len({answer for answer in together[::2] if isinstance(answer, UUID)}) == len(odd)

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
