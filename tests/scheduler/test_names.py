"""What cannot be a name is refused before a store hears of it (ID-1), by the operations of operators too."""

from __future__ import annotations

from typing import Any

import pytest

from rota import ScheduleError, Scheduler
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, registry

ODD: list[Any] = ["a\x00b", "\ud800", 7, "", "x" * 201, ["job"]]


@pytest.mark.parametrize("odd", ODD)
async def test_admin_takes_nothing_that_is_not_a_name(odd: Any) -> None:
    async with Scheduler(InProcessBackend(), registry()) as scheduler:
        with pytest.raises(ScheduleError, match="scope_id"):
            await scheduler.admin.overview(odd)
        with pytest.raises(ScheduleError, match="scope_id"):
            await scheduler.admin.decisions("job", scope_id=odd)
        with pytest.raises(ScheduleError, match="job_id"):
            await scheduler.admin.decisions(odd)
        with pytest.raises(ScheduleError, match="after"):
            await scheduler.dead_letters(after=odd)


async def test_only_so_many_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.scheduler.triggers._MAX_KNOWN_KEYS", 2)
    async with Scheduler(InProcessBackend(), registry(), concurrency=0) as scheduler:
        for number in range(5):
            await scheduler.schedule(manual(f"job-{number}", "any"))
            await scheduler.trigger_once(f"job-{number}")
            assert len(scheduler._triggering._known_keys) <= 2
