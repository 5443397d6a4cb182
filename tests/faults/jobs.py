"""The workload: a job of every kind, with handlers that keep a journal and never trust the scheduler."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota import (
    Cron,
    HandlerRegistry,
    JobContext,
    JobDefinition,
    JobResult,
    Manual,
    Misfire,
    OnEvent,
    Overlap,
    Precision,
    RetryPolicy,
)
from rota import Failed as FailedResult
from tests.faults.evidence import BLOCKING, SLOW
from tests.faults.journal import Journal
from tests.faults.points import Points

OTHER_SCOPE = "other"
ORDERED = ("shop", "Ordered")
DEADLY = "deadly"
LONG = ("slow", "blocking")  # and tried again when their node is gone

_MANY = RetryPolicy(max_attempts=30, backoff=(timedelta(milliseconds=200),), jitter=0.1)
_TWO = RetryPolicy(max_attempts=2, backoff=(timedelta(milliseconds=300),), jitter=0.0)


def _cron(
    job_id: str, expression: str, *, misfire: Misfire = Misfire.ONCE, overlap: Overlap = Overlap.SKIP
) -> JobDefinition:
    trigger = Cron(expression, misfire=misfire, overlap=overlap)
    return JobDefinition(job_id, "quick", trigger, retry=_MANY, precision=Precision.SECOND)


def _manual(job_id: str, handler: str, retry: RetryPolicy = _MANY, **options: object) -> JobDefinition:
    return JobDefinition(job_id, handler, Manual(), retry=retry, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def definitions() -> list[JobDefinition]:
    """What is scheduled before the faults begin."""
    return [
        _cron("cron-every", "* * * * * *"),
        _cron("cron-queue", "*/2 * * * * *", overlap=Overlap.QUEUE),
        _cron("cron-skip", "* * * * * *", misfire=Misfire.SKIP),
        _cron("moving", "* * * * * *"),
        _manual("plain", "quick"),
        _manual("plain", "quick", scope_id=OTHER_SCOPE),
        _manual("keyed", "quick"),
        _manual("delayed", "quick"),
        _manual("ledger", "ledger"),
        _manual("flaky", "flaky"),
        _manual("poison", "poison", _TWO),
        _manual("single", "slow", RetryPolicy.single_attempt()),
        _manual("slow", "slow"),
        _manual("blocking", "blocking"),
        _manual(DEADLY, "deadly", RetryPolicy(max_attempts=3, backoff=(timedelta(milliseconds=200),))),
        _manual("late", "late", _TWO, timeout=timedelta(milliseconds=400)),
        JobDefinition("on-event", "quick", OnEvent(*ORDERED), retry=_MANY),
    ]


def moved() -> JobDefinition:
    """`moving`, with another expression."""
    return _cron("moving", "*/5 * * * * *")


def passing(number: int) -> JobDefinition:
    """A job that is removed again while the faults go on."""
    return _manual(f"passing-{number}", "quick")


class Ledger:
    """What handlers write to: it refuses older tokens, as LEASE-1 asks of those who are written to (S18)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[int, list[str]]:
        if not self._path.exists():
            return 0, []
        token, runs = json.loads(self._path.read_text())
        return token, runs

    def write(self, token: int, runs: list[str]) -> bool:
        with self._locked():
            newest, _ = self.read()
            if token < newest:
                return False
            fresh = self._path.with_suffix(f".{token}")
            fresh.write_text(json.dumps([token, runs]))
            fresh.replace(self._path)
            return True

    def fence(self, token: int) -> list[str]:
        """The runs so far; from now on nobody with an older token writes."""
        with self._locked():
            newest, runs = self.read()
            if token > newest:
                fresh = self._path.with_suffix(f".{token}")
                fresh.write_text(json.dumps([token, runs]))
                fresh.replace(self._path)
            return runs

    @contextmanager
    def _locked(self) -> Generator[None]:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Bodies:
    """What the handlers share: the journal, the ledger, the crash points."""

    def __init__(self, journal: Journal, ledger: Ledger, points: Points) -> None:
        self._journal = journal
        self._ledger = ledger
        self._points = points

    @contextmanager
    def told(self, ctx: JobContext, payload: bytes) -> Generator[None]:
        """Journal the beginning, and how it ended."""
        self._points.reach("handler", "before")
        about: dict[str, Any] = {"run": str(ctx.run_id), "attempt": ctx.attempt, "token": ctx.fencing_token}
        self._journal.say("begin", **about, job=ctx.job_id, scope=ctx.scope_id, label=payload.decode())
        how = "returned"
        try:
            yield
            self._points.reach("handler", "inside")
        except asyncio.CancelledError:
            how = "cancelled"
            raise
        except BaseException:
            how = "failed"
            raise
        finally:
            self._journal.say("end", **about, how="stopped" if how == "returned" and ctx.cancelled else how)

    def registry(self) -> HandlerRegistry:
        handlers = HandlerRegistry()
        self._add_steady(handlers)
        self._add_failing(handlers)
        self._add_ledger(handlers)
        return handlers

    def _add_steady(self, handlers: HandlerRegistry) -> None:
        @handlers.register("quick")
        async def quick(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                await asyncio.sleep(0.03)

        @handlers.register("slow")
        async def slow(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                await asyncio.sleep(SLOW)

        @handlers.register("blocking")
        def blocking(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                time.sleep(BLOCKING)

        @handlers.register("late")
        async def late(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                await asyncio.sleep(20)

        @handlers.register("burst")
        async def burst(ctx: JobContext, payload: bytes) -> None:
            self._journal.say("burst", label=payload.decode())
            await asyncio.sleep(0.002)  # so that a kill finds it at work

    def _add_failing(self, handlers: HandlerRegistry) -> None:
        @handlers.register("flaky")
        async def flaky(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                if ctx.attempt < 3:
                    raise RuntimeError("not yet")

        @handlers.register("once")
        async def once(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                if ctx.attempt == 1:
                    raise RuntimeError("not at once")

        @handlers.register("poison")
        async def poison(ctx: JobContext, payload: bytes) -> JobResult:
            with self.told(ctx, payload):
                return FailedResult("poison")

        @handlers.register("deadly")
        async def deadly(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                self._points.die()

    def _add_ledger(self, handlers: HandlerRegistry) -> None:
        @handlers.register("ledger")
        async def ledger(ctx: JobContext, payload: bytes) -> None:
            with self.told(ctx, payload):
                runs = self._ledger.fence(ctx.fencing_token)
                await asyncio.sleep(0.05)
                if not self._ledger.write(ctx.fencing_token, [*runs, str(ctx.run_id)]):
                    raise RuntimeError("the ledger refused an old token")
