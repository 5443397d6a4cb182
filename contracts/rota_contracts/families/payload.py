"""ID-4: payloads arrive as given, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.errors import PayloadTooLarge
from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota.model.validation import MAX_PAYLOAD
from rota_contracts.clause import Level, clause
from rota_contracts.declare import key, manual
from rota_contracts.scene import Scene


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
        limit = min(scene.harness.max_payload, MAX_PAYLOAD)  # no definition holds more
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
            await node.schedule(manual(handler="fail", payload=b"the job's", retry=RetryPolicy.fixed(seconds=1)))
            run = await scene.run(node, "job", payload=b"this run's")
            await scene.advance(seconds=4)
            await node.replay(run.run_id)
            await scene.settle()
            assert [each.payload for each in scene.journal] == [b"this run's"] * 4

    @clause("ID-4", "the next attempt does not see changes that an attempt makes to its copy of the payload")
    async def test_an_attempt_does_not_see_what_an_earlier_one_did_to_its_payload(self, scene: Scene) -> None:
        from rota.handlers import HandlerRegistry

        seen: list[list[str]] = []
        registry = HandlerRegistry()

        @registry.register("mutating")
        async def mutating(ctx: Any, payload: list[str]) -> None:
            seen.append(list(payload))
            payload.append("changed")
            if ctx.attempt < 3:
                raise RuntimeError("again")

        async with scene.open(handlers=registry) as node:
            quick = RetryPolicy.fixed(seconds=1)
            await node.schedule(manual(handler="mutating", payload=b'["as given"]', retry=quick))
            await node.trigger_once("job")
            await node.trigger_once("job")
            await scene.advance(seconds=8)
            assert seen == [["as given"]] * 6

    @clause("ID-4", "the next attempt gets the same bytes on another node", level=Level.NODES)
    async def test_a_payload_does_not_change_on_its_way_to_another_node(self, scene: Scene) -> None:
        payload = bytes(range(256))
        lease = timedelta(seconds=3)
        async with scene.open(lease=lease) as one:
            await one.schedule(manual(handler="hold"))
            await one.trigger_once("job", payload=payload)
            await scene.settle()
            async with scene.open(lease=lease):
                await scene.crash(one)
                await scene.advance(seconds=6)
                assert [each.payload for each in scene.journal] == [payload, payload]
                scene.gate.open()
