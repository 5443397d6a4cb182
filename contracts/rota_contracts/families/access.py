"""ACCESS: JobApi over the scheduler at hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rota.access import AccessContext, JobApi, Role
from rota.errors import AccessDenied
from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota.model.validation import LIFECYCLE_MODULE
from rota.protocol import JobScheduler
from rota_contracts.clause import clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.scene import Scene

_SECRET = b"swordfish-4711"
_READERS = (frozenset({Role.VIEWER}), frozenset({Role.MEMBER}), frozenset({Role.VIEWER, Role.MEMBER}))


def _api(scene: Scene, node: JobScheduler, *roles: Role, scope_id: str = "team") -> JobApi:
    return JobApi(node, AccessContext("eve", scope_id, frozenset(roles)), scene.event_store)


def _writes(api: JobApi, letter: UUID, queued: UUID) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
    """Every write there is, each of which would change something."""
    return {
        "schedule": lambda: api.schedule(manual("new")),
        "replace": lambda: api.schedule(manual("job", priority=9)),
        "trigger_once": lambda: api.trigger_once("job"),
        "pause": lambda: api.pause("job", reason="eve"),
        "resume": lambda: api.resume("paused"),
        "cancel": lambda: api.cancel(queued),
        "replay": lambda: api.replay(letter),
        "discard": lambda: api.discard(letter),
        "reveal_payload": lambda: api.reveal_payload("job"),
        "unschedule": lambda: api.unschedule("job"),
    }


async def _stand(scene: Scene, node: JobScheduler) -> tuple[UUID, UUID]:
    """A dead letter and a queued run in the scope `team`, and a paused job."""
    own: dict[str, Any] = {"scope_id": "team", "handler": "script", "retry": RetryPolicy.single_attempt()}
    await node.schedule(manual("job", payload=_SECRET, **own))
    letter = await scene.run(node, "job", scope_id="team", payload=script("raise:no"))
    assert letter.state is RunState.DEAD
    queued = await node.trigger_once("job", scope_id="team", payload=script("ok"), delay=timedelta(hours=1))
    await node.schedule(manual("paused", **own))
    await node.pause("paused", reason="for now", scope_id="team")
    return letter.run_id, queued


async def _everything(node: JobScheduler) -> list[Any]:
    """What a write in the scope could have changed."""
    jobs = await node.list_schedules("team")
    found: list[Any] = [jobs, await node.dead_letters("team")]
    for job in jobs:
        found += [await node.status(job.job_id, scope_id="team")]
        found += [await node.get_run_history(job.job_id, scope_id="team")]
    return found


class AccessClauses:
    """ACCESS-1, ACCESS-2: who may do what."""

    @clause("ACCESS-1", "writes need OWNER or ADMIN: denied to others before anything changes")
    async def test_a_denied_write_does_not_change_anything(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter, queued = await _stand(scene, node)
            before = await _everything(node)
            for roles in (*_READERS, frozenset[Role]()):
                for action, write in _writes(_api(scene, node, *roles), letter, queued).items():
                    with pytest.raises(AccessDenied):
                        await write()
                    await scene.settle()
                    assert await _everything(node) == before, f"{action} was denied to {roles} and happened"

    @clause("ACCESS-1", "a denial is audited, and so is a write")
    async def test_a_denial_does_not_go_unrecorded(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter, queued = await _stand(scene, node)
            for role in (Role.VIEWER, Role.ADMIN):
                for action, write in _writes(_api(scene, node, role), letter, queued).items():
                    before = len(await _trail(scene))
                    try:
                        await write()
                    except LookupError:
                        assert action != "schedule"
                    except AccessDenied:
                        assert role is Role.VIEWER
                    assert len(await _trail(scene)) > before, f"{action} by {role} left no trail"

    @clause("ACCESS-1", "OWNER and ADMIN may write")
    async def test_a_writer_is_not_denied(self, scene: Scene) -> None:
        async with scene.open() as node:
            for role in (Role.OWNER, Role.ADMIN):
                api = _api(scene, node, role, Role.VIEWER)
                await api.schedule(manual())
                await api.trigger_once("job")
                await scene.settle()
                assert await api.unschedule("job") is True
            assert scene.journal.count("job", "team") == 2

    @clause("ACCESS-1", "scope and creator of a definition are overwritten from the context, and reach the handler")
    async def test_a_definition_does_not_choose_its_scope_or_creator(self, scene: Scene) -> None:
        async with scene.open() as node:
            api = _api(scene, node, Role.ADMIN)
            await api.schedule(cron(scope_id="other", created_by="root"))
            assert await node.get_schedule("job", scope_id="other") is None
            stored = await node.get_schedule("job", scope_id="team")
            assert stored is not None
            assert (stored.scope_id, stored.created_by) == ("team", "eve")
            await api.trigger_once("job")
            await scene.settle()
            access = scene.journal.last("job", "team").access
            assert isinstance(access, AccessContext)
            assert (access.subject, access.scope_id, access.roles, access.synthetic) == (
                "eve",
                "team",
                frozenset(),
                True,
            )

    @clause("ACCESS-1", "an api reads and changes its own scope only")
    async def test_an_api_does_not_reach_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            letter, queued = await _stand(scene, node)
            before = await _everything(node)
            api = _api(scene, node, Role.OWNER, scope_id="other")
            assert await api.get_schedule("job") is None
            assert await api.list_schedules() == []
            assert await api.get_run(letter) is None
            assert await api.get_run_history("job") == []
            assert await api.dead_letters() == []
            for write in list(_writes(api, letter, queued).values())[2:]:
                try:
                    assert await write() is False
                except LookupError:
                    continue
            assert await _everything(node) == before

    @clause("ACCESS-2", "payloads are redacted in everything an api reads")
    async def test_an_api_does_not_show_payloads(self, scene: Scene) -> None:
        async with scene.open() as node:
            await _stand(scene, node)
            api = _api(scene, node, Role.OWNER)
            status, found = await api.status("job"), await api.get_schedule("job")
            definitions = [found, *await api.list_schedules(), None if status is None else status.definition]
            assert len(definitions) == 4
            assert all(each is not None and _SECRET not in each.payload for each in definitions)
            assert str(len(_SECRET)) in repr(found), "its length is shown"

    @clause("ACCESS-2", "an explicit, permitted read shows a payload and is audited")
    async def test_a_payload_is_not_revealed_without_a_trail(self, scene: Scene) -> None:
        async with scene.open() as node:
            await _stand(scene, node)
            before = len(await _trail(scene))
            assert await _api(scene, node, Role.ADMIN).reveal_payload("job") == _SECRET
            trail = (await _trail(scene))[before:]
            assert any(b"eve" in entry for entry in trail)
            assert not any(_SECRET in entry for entry in trail)

    @clause("ACCESS-2", "a redacted definition that an api showed cannot be stored back with an empty payload")
    async def test_a_redacted_definition_does_not_wipe_the_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            await _stand(scene, node)
            api = _api(scene, node, Role.ADMIN)
            shown = await api.get_schedule("job")
            assert shown is not None
            with pytest.raises(ValueError, match="payload"):
                await api.schedule(shown)
            stored = await node.get_schedule("job", scope_id="team")
            assert stored is not None
            assert stored.payload == _SECRET


async def _trail(scene: Scene) -> list[bytes]:
    """The data of all events that are no lifecycle events: what an api has written down."""
    page = await scene.event_store.read(0, 1000)
    return [event.data for _, event in page if event.source_module != LIFECYCLE_MODULE]
