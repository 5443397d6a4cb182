"""Play one clause on one harness and give what it had to say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota_contracts import Harness, Scene
from rota_contracts.clause import Clause

_PATIENCE = 30.0  # of real time: a fault that hangs a clause is reported as broken, not as caught


async def play(family: type, clause: Clause, harness: Harness) -> BaseException | None:
    """The clause's failure, or None when it passes."""
    scene = Scene(harness, clause.uses)
    try:
        await asyncio.wait_for(_body(clause, family(), scene), _PATIENCE)
    except (Exception, pytest.fail.Exception) as problem:
        return problem
    finally:
        scene.open_gates()
        await _close(harness)
    return None


async def _body(clause: Clause, family: Any, scene: Scene) -> None:
    await clause.body(family, scene)


async def _close(harness: Any) -> None:
    close = getattr(harness, "close", None)
    if close is not None:
        await close()
