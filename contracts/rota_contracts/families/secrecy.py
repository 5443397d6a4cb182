"""OPS-3 and ACCESS-2: payloads stay where they belong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from rota.errors import PayloadTooLarge
from rota.handlers import HandlerRegistry
from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota_contracts.clause import clause
from rota_contracts.declare import event, manual, on_event
from rota_contracts.families._log import logged, written
from rota_contracts.families._ways import ended, told
from rota_contracts.scene import Scene

SECRET = "swordfish-4711"
_PAYLOAD = SECRET.encode()
_ONCE = RetryPolicy.single_attempt()


@frozen
class Account:
    """A payload whose decoding fails somewhere inside."""

    password: int


class SecrecyClauses:
    """OPS-3, ACCESS-2: nothing that Rota formats contains a payload: no log line, error or event."""

    @clause("OPS-3", "nothing that Rota logs contains a payload, however its runs end")
    async def test_a_payload_is_not_logged(self, scene: Scene) -> None:
        @scene.handler("returns-it")
        async def returns_it(ctx: Any, payload: bytes) -> str:
            return payload.decode()

        with logged() as records:
            async with scene.open() as node:
                for handler in ("ok", "fail", "hold", "returns-it", "nobody-has-this"):
                    definition = manual(handler, handler, payload=_PAYLOAD, retry=_ONCE, timeout=timedelta(seconds=5))
                    await node.schedule(definition)
                    await node.trigger_once(handler, payload=_PAYLOAD + b" too")
                await node.schedule(on_event(handler="fail", retry=_ONCE))
                await node.notify(event(data=_PAYLOAD))
                await scene.advance(seconds=30)
                await node.health()
        assert not [record for record in records if SECRET in written(record)]

    @clause("ACCESS-2", "an undecodable payload is named by path and type, never by value, in error, log and events")
    async def test_a_decode_error_does_not_quote_the_payload(self, scene: Scene) -> None:
        with logged() as records:
            async with scene.open(handlers=_typed()) as node:
                await node.schedule(manual(handler="typed"))
                bad = b'{"password": "%s"}' % _PAYLOAD
                ids = [await node.trigger_once("job", payload=text) for text in (bad, _PAYLOAD, bad[:-4])]
                runs = [await ended(scene, node, run_id) for run_id in ids]
                assert [run.state for run in runs] == [RunState.DEAD] * 3
                assert "password" in (runs[0].error or "")
                assert "int" in (runs[0].error or "")
                assert SECRET not in repr(runs)
                await told(scene, 10)
        assert not [record for record in records if SECRET in written(record)]
        assert not [data for data in await scene.event_data("job") if SECRET in repr(data)]

    @clause("OPS-3", "lifecycle events do not carry payloads")
    async def test_a_payload_is_not_told(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", payload=_PAYLOAD, retry=_ONCE))
            await ended(scene, node, await node.trigger_once("job"))
            await told(scene, 4)
            assert not [each for each in await scene.events("job") if _PAYLOAD in each.data]

    @clause("OPS-3", "an error about a payload does not contain it")
    async def test_a_refusal_does_not_quote_the_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            large = _PAYLOAD * (scene.harness.max_payload // len(_PAYLOAD) + 1)
            with pytest.raises(PayloadTooLarge) as refusal:
                await node.trigger_once("job", payload=large)
            assert SECRET not in f"{refusal.value} {refusal.value!r}"

    @clause("ACCESS-2", "repr of what is read shows the length of a payload, not the payload")
    async def test_repr_does_not_show_a_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(payload=_PAYLOAD, handler="fail", retry=_ONCE))
            await ended(scene, node, await node.trigger_once("job", payload=_PAYLOAD))
            read = [
                await node.get_schedule("job"),
                await node.list_schedules(),
                await node.status("job"),
                await node.get_run_history("job"),
                await node.dead_letters(),
            ]
            assert SECRET not in repr(read)
            assert f"{len(_PAYLOAD)} bytes" in repr(read[0])


def _typed() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.register("typed")
    async def typed(ctx: Any, payload: Account) -> None:
        return None

    return registry
