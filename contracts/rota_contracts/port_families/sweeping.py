"""Events that a sweep delivers: only while the stored position is where the sweep read them."""

from __future__ import annotations

from datetime import timedelta

from rota.backend import Bookmark, EventLimits, RunQuery
from rota.model.event import Event
from rota_contracts.clause import clause
from rota_contracts.port import SCOPE, Port

_LIMITS = EventLimits(timedelta(days=1), 100, 16)


def _ordered(event_id: str) -> Event:
    return Event("shop", "Ordered", event_id=event_id)


async def _events(port: Port, job_id: str = "job") -> list[str | None]:
    return [run.event_id for run in await port.backend.runs(RunQuery(SCOPE, job_id))]


class SweepClauses:
    """EVENT-5: of two sweeps over the same events one delivers them."""

    @clause("EVENT-5", "events make their runs while the position is where they were read, and a repeat gives the same")
    async def test_events_make_their_runs_while_the_position_is_where_they_were_read(self, port: Port) -> None:
        await port.listen()
        first, second = _ordered("1"), _ordered("2")
        (made,) = await port.backend.notify([first], _LIMITS, since=Bookmark("events", 0))
        assert len(made) == 1
        assert await port.backend.notify([first], _LIMITS, since=Bookmark("events", 0)) == [made], "a repeat"
        assert await port.backend.setting("events", 0, 1) == 1
        made, nothing = await port.backend.notify([second, Event("shop", "Paid")], _LIMITS, since=Bookmark("events", 1))
        assert (len(made), nothing) == (1, [])
        assert await _events(port) == ["2", "1"]

    @clause("EVENT-5", "events make no run once the position has moved")
    async def test_events_make_no_run_once_the_position_has_moved(self, port: Port) -> None:
        await port.backend.setting("events", 0, 5)
        await port.backend.setting("events/of others", 0, 7)
        await port.listen()
        for since in (Bookmark("events", 0), Bookmark("events", 7), Bookmark("events/new", 5)):
            assert await port.backend.notify([_ordered("1"), Event("shop", "Paid")], _LIMITS, since=since) == []
        assert await _events(port) == []

    @clause("EVENT-5", "a repeat makes nothing for a job registered after the position has moved")
    async def test_a_repeat_makes_nothing_once_the_position_has_moved(self, port: Port) -> None:
        await port.listen()
        await port.backend.notify([_ordered("1")], _LIMITS, since=Bookmark("events", 0))
        await port.backend.setting("events", 0, 1)
        await port.listen("again")
        assert await port.backend.notify([_ordered("1")], _LIMITS, since=Bookmark("events", 0)) == []
        assert await _events(port, "again") == []


class LifecycleEventClauses:
    """EVENT-6: a job does not fire on lifecycle events about itself."""

    @clause("EVENT-6", "only a lifecycle event whose subject is the job itself is withheld from it")
    async def test_only_a_lifecycle_event_about_the_job_itself_is_withheld(self, port: Port) -> None:
        await port.listen(module="_platform.jobs", event_type="JobSucceeded")
        events = [Event("_platform.jobs", "JobSucceeded", subject=subject) for subject in (None, "another", "job")]
        told = await port.backend.notify(events, _LIMITS)
        assert [len(each) for each in told] == [1, 1, 0]
