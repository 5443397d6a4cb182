"""How a scheduler is set up: every option checked once, where it is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from attrs import field, frozen

from rota.errors import ScheduleError
from rota.model.run import Retention
from rota.model.validation import check_duration, check_kind, check_name, check_whole


@frozen(kw_only=True)
class Options:
    """See `Scheduler`. Durations and numbers are checked; the field is named by the error."""

    queues: Mapping[str, int] | None
    concurrency: int
    lease: timedelta
    drain_timeout: timedelta | None
    cancel_grace: timedelta
    retention: Retention = field(factory=Retention)
    lane_limit: int
    event_memory: timedelta
    max_depth: int
    dead_letter_alarm: int

    def __attrs_post_init__(self) -> None:
        check_kind("retention", self.retention, Retention)
        check_duration("lease", self.lease)
        check_duration("cancel_grace", self.cancel_grace, zero=True)
        check_duration("event_memory", self.event_memory)
        if self.drain_timeout is not None:
            check_duration("drain_timeout", self.drain_timeout, zero=True)
        if self.queues is not None:
            _check_queues(self.queues)
        check_whole("concurrency", self.concurrency, 0)
        check_whole("lane_limit", self.lane_limit, 1)
        check_whole("max_depth", self.max_depth, 1)
        check_whole("dead_letter_alarm", self.dead_letter_alarm, 1)


def _check_queues(queues: Mapping[str, int]) -> None:
    check_kind("queues", queues, Mapping)
    if not queues:
        raise ScheduleError("queues", "must name at least one queue; leave it out to serve all of them")
    for queue, slots in queues.items():
        check_name("queues", queue)
        check_whole(f"queues[{queue!r}]", slots, 1)
