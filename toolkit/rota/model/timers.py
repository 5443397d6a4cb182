"""Triggers without a time zone: at a fixed interval of elapsed time, or once (EVERY-1, AT-1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import evolve, field, frozen

from rota.cron.value import Misfire, Overlap
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.validation import (
    Checks,
    check_duration,
    check_instant,
    check_wait,
    member,
    optional,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {Precision.MINUTE: timedelta(minutes=1), Precision.SECOND: timedelta(seconds=1)}


def cut_to(precision: Precision, instant: datetime) -> datetime:
    """The last instant of the precision's grid that is not after this one."""
    return instant - (instant - _EPOCH) % _UNITS[precision]


def _is_on_grid(precision: Precision, instant: datetime) -> bool:
    return not (instant - _EPOCH) % _UNITS[precision]


@frozen
class Every:
    """Run every `interval`, counted from `start` in elapsed time; `start` itself counts (EVERY-1).

    Without a `start` the job begins when it is first registered. The scheduler keeps that instant as `anchor`, which is
    ignored when two definitions are compared (REG-2).
    """

    interval: timedelta
    start: datetime | None = field(default=None, kw_only=True)
    misfire: Misfire = field(default=Misfire.ONCE, kw_only=True)
    grace: timedelta | None = field(default=None, kw_only=True)
    overlap: Overlap = field(default=Overlap.SKIP, kw_only=True)
    anchor: datetime | None = field(default=None, kw_only=True, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_every(self)

    def anchored(self, at: datetime) -> Every:
        """A copy that begins at `at` if it has no start."""
        return evolve(self, anchor=at)

    def has_rhythm_of(self, other: object) -> bool:
        """True if both have the same interval and start."""
        return isinstance(other, Every) and (self.interval, self.start) == (other.interval, other.start)

    def check_precision(self, precision: Precision) -> None:
        """Refuse an interval or a start that is finer than the precision (EVERY-1)."""
        unit = _UNITS[precision]
        if self.interval % unit:
            raise ScheduleError("trigger.interval", _coarse("must be a whole number of", precision, self.interval))
        if self.start is not None and not _is_on_grid(precision, self.start):
            raise ScheduleError("trigger.start", _coarse("must be a whole", precision, self.start - _EPOCH))

    def next_after(self, instant: datetime) -> datetime:
        """The first occurrence strictly after `instant`."""
        return self._number(max(0, (instant - self._begin) // self.interval + 1))

    def previous_before(self, instant: datetime) -> datetime:
        """The last occurrence strictly before `instant`."""
        number = -((self._begin - instant) // self.interval) - 1
        if number < 0:
            raise ScheduleError("instant", f"there is no occurrence before {instant.isoformat()}")
        return self._number(number)

    def count(self, first: datetime, last: datetime) -> int:
        """How many occurrences there are from `first` to `last`, both included."""
        until = (last - self._begin) // self.interval + 1
        before = -((self._begin - first) // self.interval)
        return max(0, until - max(0, before))

    def describe(self) -> str:
        """The schedule as an English sentence."""
        begin = self.start or self.anchor
        since = "its registration" if begin is None else begin.isoformat()
        return f"Every {self.interval}, from {since} on."

    @property
    def _begin(self) -> datetime:
        begin = self.start or self.anchor
        if begin is None:
            raise ScheduleError("trigger.start", "is not known before the job is registered; give one to compute with")
        return begin

    def _number(self, number: int) -> datetime:
        try:
            return self._begin + number * self.interval
        except OverflowError:
            raise ScheduleError("instant", "there is no occurrence within the years 1 to 9999") from None


@frozen
class At:
    """Run once, at `instant` (AT-1). A past instant runs at once, unless `misfire` or `grace` say otherwise."""

    instant: datetime
    misfire: Misfire = field(default=Misfire.ONCE, kw_only=True)
    grace: timedelta | None = field(default=None, kw_only=True)

    @property
    def overlap(self) -> Overlap:
        """SKIP: the occurrence is skipped while an earlier run of the job is unfinished."""
        return Overlap.SKIP

    def __attrs_post_init__(self) -> None:
        check_at(self)

    def check_precision(self, precision: Precision) -> None:
        """Refuse an instant that is finer than the precision (AT-1)."""
        if not _is_on_grid(precision, self.instant):
            reason = _coarse("must be a whole", precision, self.instant - _EPOCH)
            raise ScheduleError("trigger.instant", f"{reason}; trigger_once(at=…) takes any instant")

    def next_after(self, instant: datetime) -> datetime | None:
        """The occurrence if it comes after `instant`, else None."""
        return self.instant if self.instant > instant else None

    def previous_before(self, instant: datetime) -> datetime:
        """The occurrence, if it came before `instant`."""
        if self.instant >= instant:
            raise ScheduleError("instant", f"there is no occurrence before {instant.isoformat()}")
        return self.instant

    def count(self, first: datetime, last: datetime) -> int:
        """1 if the occurrence lies between `first` and `last`, both included."""
        return int(first <= self.instant <= last)

    def describe(self) -> str:
        """The schedule as an English sentence."""
        return f"Once, at {self.instant.isoformat()}."


def _coarse(what: str, precision: Precision, value: timedelta) -> str:
    """Why the value is too fine, and which precision allows it."""
    plural = "s" if what.endswith("of") else ""
    if precision is Precision.MINUTE and not value % _UNITS[Precision.SECOND]:
        return f"{what} minute{plural}; for seconds register the job with precision=Precision.SECOND"
    return f"{what} {precision.value}{plural}; fractions of a second are not possible with any precision"


_POLICIES = {"misfire": member(Misfire), "grace": optional(check_wait)}
check_every = Checks(
    "trigger.",
    interval=check_duration,
    start=optional(check_instant),
    overlap=member(Overlap),
    anchor=optional(check_instant),
    **_POLICIES,
)
check_at = Checks("trigger.", instant=check_instant, **_POLICIES)
