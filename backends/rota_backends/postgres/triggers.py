"""Groups triggers: those that come while a statement is under way go together in the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from rota.backend import NewRun, Refusal
from rota.errors import OutcomeUnknown, StoreUnavailable

Answers = list[UUID | Refusal]
Group = Sequence[tuple[Sequence[NewRun], "asyncio.Future[Answers]"]]
_MOST = 500
_SHARE = 16 * 1024  # bytes of payload: a larger trigger counts for several, so that a group stays within the time limit


class Triggers:
    """One statement at a time: a commit costs the same for a hundred triggers as for one."""

    def __init__(self, store: Callable[[Sequence[NewRun]], Awaitable[Answers]]) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[NewRun], asyncio.Future[Answers]]] = []
        self._is_busy = False
        self._rest: asyncio.Task[None] | None = None

    async def put(self, batch: Sequence[NewRun]) -> Answers:
        """Store a batch and return its answers."""
        if self._is_busy:
            future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
            self._waiting.append((batch, future))
            return await future
        self._is_busy = True
        try:
            return await self._store(batch)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        self._waiting = [each for each in self._waiting if not each[1].done()]  # without callers that were cancelled
        self._is_busy = bool(self._waiting)
        if self._waiting:
            self._rest = asyncio.create_task(self._store_waiting(), name="rota triggers")

    async def _store_waiting(self) -> None:
        group = self._next_group()
        try:
            await self._store_together(group)
        finally:  # also if this is cancelled: a caller without an answer would wait for ever
            _refuse(group, OutcomeUnknown("the backend was closed meanwhile"))
            self._rest = None
            self._go_on()

    async def _store_together(self, group: Group) -> None:
        try:
            answers = await self._store([each for batch, _ in group for each in batch])
        except (StoreUnavailable, OutcomeUnknown) as error:
            _refuse(group, error)
        except Exception:
            await self._store_apart(group)
        else:
            _hand_out(group, answers)

    async def _store_apart(self, group: Group) -> None:
        """One trigger of the group cannot be stored: store each caller's alone, so that one caller gets the error."""
        for batch, future in group:
            try:
                answers = await self._store(batch)
            except Exception as error:
                _refuse([(batch, future)], error)
            else:
                _hand_out([(batch, future)], answers)

    def _next_group(self) -> Group:
        group: list[tuple[Sequence[NewRun], asyncio.Future[Answers]]] = []
        size = 0
        while self._waiting and (not group or size + _size(self._waiting[0][0]) <= _MOST):
            group.append(self._waiting.pop(0))
            size += _size(group[-1][0])
        return group

    async def stop(self) -> None:
        """Answer every caller that still waits."""
        rest, self._rest = self._rest, None
        _refuse(self._waiting, StoreUnavailable("the backend was closed"))
        self._waiting.clear()
        self._is_busy = False
        if rest is not None:
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)


def _size(batch: Sequence[NewRun]) -> int:
    return sum(1 + len(each.payload or b"") // _SHARE for each in batch)


def _refuse(group: Group, error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)


def _hand_out(group: Group, answers: Answers) -> None:
    start = 0
    for batch, future in group:
        if not future.done():
            future.set_result(answers[start : start + len(batch)])
        start += len(batch)
