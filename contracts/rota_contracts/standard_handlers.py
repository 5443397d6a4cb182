"""The handlers every scene has. Each call is written to the journal, whoever registers it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rota.model.outcome import Failed, JobResult, Retry, Succeeded
from rota_contracts.journal import Ending, Invocation

if TYPE_CHECKING:
    from rota_contracts.scene import Scene

AsyncHandler = Callable[[Any, bytes], Awaitable[Any]]
SyncHandler = Callable[[Any, bytes], Any]


class Boom(Exception):
    """What failing handlers raise."""


def journaled(scene: Scene, handler: AsyncHandler | SyncHandler) -> Callable[[Any, bytes], Any]:
    """The handler, with every call written down."""
    if inspect.iscoroutinefunction(handler):
        return _journaled_async(scene, handler)
    return _journaled_sync(scene, handler)


def _journaled_async(scene: Scene, handler: AsyncHandler) -> AsyncHandler:
    async def entry(ctx: Any, payload: bytes) -> Any:
        invocation = _begin(scene, ctx, payload)
        try:
            result = await handler(ctx, payload)
        except BaseException as error:
            _end(scene, invocation, error)
            raise
        _end(scene, invocation, None)
        return result

    return entry


def _journaled_sync(scene: Scene, handler: SyncHandler) -> SyncHandler:
    def entry(ctx: Any, payload: bytes) -> Any:
        invocation = _begin(scene, ctx, payload)
        try:
            result = handler(ctx, payload)
        except BaseException as error:
            _end(scene, invocation, error)
            raise
        _end(scene, invocation, None)
        return result

    return entry


def _begin(scene: Scene, ctx: Any, payload: bytes) -> Invocation:
    invocation = Invocation(
        ctx.job_id, ctx.scope_id, ctx.handler_name, ctx.run_id, ctx.attempt, bytes(payload), ctx.due, ctx.cause,
        ctx.queue, ctx.fencing_token, ctx.event, ctx.access, ctx.deadline, scene.now(),
    )  # fmt: skip
    scene.journal.entries.append(invocation)
    return invocation


def _end(scene: Scene, invocation: Invocation, error: BaseException | None) -> None:
    invocation.ended = scene.now()
    if error is None:
        invocation.ending = Ending.RETURNED
    else:
        invocation.ending = Ending.CANCELLED if isinstance(error, asyncio.CancelledError) else Ending.RAISED


class StandardHandlers:
    """The standard handlers; `Scene` describes them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def handlers(self) -> dict[str, AsyncHandler | SyncHandler]:
        """By the name under which a job asks for them."""
        return {
            "ok": self.ok, "fail": self.fail, "hold": self.hold, "slow": self.slow, "stubborn": self.stubborn,
            "flaky": self.flaky, "script": self.script,
            "sync-ok": self.sync_ok, "sync-fail": self.sync_fail, "sync-hold": self.sync_hold,
        }  # fmt: skip

    async def ok(self, ctx: Any, payload: bytes) -> None:
        return None

    async def fail(self, ctx: Any, payload: bytes) -> None:
        raise Boom("boom")

    async def hold(self, ctx: Any, payload: bytes) -> None:
        await self._scene.gate.wait()

    async def slow(self, ctx: Any, payload: bytes) -> None:
        await self._scene.sleep(self._scene.slow_for)

    async def stubborn(self, ctx: Any, payload: bytes) -> None:
        while True:
            try:
                return await self._scene.gate.wait()
            except asyncio.CancelledError:
                continue

    async def flaky(self, ctx: Any, payload: bytes) -> None:
        if ctx.attempt <= int(payload or b"1"):
            raise Boom(f"attempt {ctx.attempt} fails")

    async def script(self, ctx: Any, payload: bytes) -> Any:
        return await _follow(self._scene, ctx.attempt, payload)

    def sync_ok(self, ctx: Any, payload: bytes) -> None:
        return None

    def sync_fail(self, ctx: Any, payload: bytes) -> None:
        raise Boom("boom")

    def sync_hold(self, ctx: Any, payload: bytes) -> None:
        self._scene.gate.hold(self._scene.loop)


async def _follow(scene: Scene, attempt: int, payload: bytes) -> Any:
    steps = payload.decode().split("|")
    verb, _, rest = steps[min(attempt, len(steps)) - 1].partition(":")
    if verb == "hold":
        return await scene.gate.wait()
    if verb == "sleep":
        return await scene.sleep(timedelta(seconds=float(rest)))
    return _say(verb, rest)


def _say(verb: str, rest: str) -> JobResult | str | None:
    match verb:
        case "ok":
            return Succeeded(int(rest)) if rest else None
        case "fail":
            return Failed(rest or "failed")
        case "permanent":
            return Failed(rest or "failed", permanent=True)
        case "retry":
            return Retry(timedelta(seconds=float(rest)) if rest else None)
        case "exit":
            raise SystemExit(rest or "exit")
        case "value":
            return rest or "a value"
        case _:
            raise Boom(rest or verb)
