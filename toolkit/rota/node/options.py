"""The options of a scheduler, each checked once, when it is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from attrs import field, frozen

from rota.errors import ScheduleError
from rota.model.run import Retention
from rota.model.validation import check_duration, check_name, check_whole
from rota.node.run_log import LogErrors

MIN_LEASE = timedelta(milliseconds=100)  # with a shorter one a node would do little but renew


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
    log_errors: LogErrors

    def __attrs_post_init__(self) -> None:
        check_duration("lease", self.lease)
        if self.lease < MIN_LEASE:
            raise ScheduleError("lease", "must be at least 100 ms: a node renews its leases every third of that time")
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
        if not isinstance(self.log_errors, LogErrors):
            raise ScheduleError("log_errors", "must be LogErrors.TRACEBACK or LogErrors.TYPE")


def _check_queues(queues: Mapping[str, int]) -> None:
    if not queues:
        raise ScheduleError("queues", "must name at least one queue; leave it out to serve all of them")
    for queue, slots in queues.items():
        check_name("queues", queue)
        check_whole(f"queues[{queue!r}]", slots, 1)
