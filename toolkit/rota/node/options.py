"""The options of a scheduler, each checked once, when it is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from attrs import field, frozen

from rota.errors import ScheduleError
from rota.model.run import Retention
from rota.model.validation import (
    Checks,
    check_duration,
    check_name,
    check_wait,
    check_whole,
    instance_of,
    is_a,
    kind_of,
    member,
    optional,
    whole,
)
from rota.node.run_log import LogErrors

MIN_LEASE = timedelta(milliseconds=100)  # with a shorter lease a node would be busy renewing


@frozen(kw_only=True)
class Options:
    """See `Scheduler`. Every option is checked; the error names it."""

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
        _check_fields(self)


def _check_queues(field: str, value: Any) -> dict[str, int]:
    if not is_a(value, dict):
        raise ScheduleError(field, f"must map names of queues to numbers of slots, not {kind_of(value)}")
    queues = dict(_check_queue(field, *item) for item in dict.items(value))
    if not queues:
        raise ScheduleError(field, "must name at least one queue; leave it out to serve all of them")
    return queues


def _check_queue(field: str, queue: object, slots: object) -> tuple[str, int]:
    name = check_name(field, queue)
    return name, check_whole(f"{field}[{name!r}]", slots, 1)


def _check_lease(field: str, value: Any) -> timedelta:
    lease = check_duration(field, value)
    if lease < MIN_LEASE:
        raise ScheduleError(field, "must be at least 100 ms: a node renews its leases every third of that time")
    return lease


_check_fields = Checks(
    queues=optional(_check_queues),
    concurrency=whole(0),
    lease=_check_lease,
    drain_timeout=optional(check_wait),
    cancel_grace=check_wait,
    retention=instance_of(Retention),
    lane_limit=whole(1),
    event_memory=check_duration,
    max_depth=whole(1),
    dead_letter_alarm=whole(1),
    log_errors=member(LogErrors),
)
