"""`Cron`: the schedule of a job, as a value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import frozen

from rota.cron.describe import sentence
from rota.cron.fields import check_posix, parse
from rota.cron.hashed import Seed
from rota.cron.host import host_zone
from rota.cron.plan import Plan, Unresolved, plan_for
from rota.cron.zone import DAY, EPOCH, Zone, zone_named
from rota.errors import ScheduleError
from rota.model.choice import Choice
from rota.model.validation import MAX_NAME, Checks, check_text, check_wait, is_a, kind_of, member, optional


class Misfire(Choice):
    """The policy for occurrences that became due while no node was running (CRON-7)."""

    ONCE = "once"
    """One run for all of them, with the latest as its due instant."""
    SKIP = "skip"
    """No run, except for the latest if it is less than a minute (second) late."""


class Overlap(Choice):
    """The policy for an occurrence while an earlier run of the job is unfinished (CRON-8)."""

    SKIP = "skip"
    QUEUE = "queue"
    """One occurrence may wait, later ones are skipped."""


class _Compiled:
    # Not attrs fields, so that equality, hash, repr and encoding use only the five public fields.
    __slots__ = ("_plan", "_source", "_zone")
    _plan: Plan
    _source: tuple[str, Seed] | None  # for a resolved schedule: the expression with H, and the job
    _zone: Zone


@frozen
class Cron(_Compiled):
    """A cron schedule in a time zone (CRON-1, CRON-2, CRON-3); checks itself when made.

    Raises InvalidCron, which points at the wrong character, and ScheduleError for the other fields.
    """

    expression: str
    tz: str = "UTC"
    misfire: Misfire = Misfire.ONCE
    grace: timedelta | None = None
    overlap: Overlap = Overlap.SKIP

    def __attrs_post_init__(self) -> None:
        _check_fields(self)
        object.__setattr__(self, "_plan", plan_for(self.expression))
        object.__setattr__(self, "_source", None)
        object.__setattr__(self, "_zone", zone_named(self.tz))

    @classmethod
    def posix(
        cls,
        expression: str,
        tz: str = "UTC",
        misfire: Misfire = Misfire.ONCE,
        grace: timedelta | None = None,
        overlap: Overlap = Overlap.SKIP,
    ) -> Cron:
        """The same, restricted to POSIX: five fields of numbers, lists, ranges and `*`, Sunday as 0 (CRON-1)."""
        check_posix(check_text("trigger.expression", expression))
        return cls(expression, tz, misfire, grace, overlap)

    @classmethod
    def local(
        cls,
        expression: str,
        misfire: Misfire = Misfire.ONCE,
        grace: timedelta | None = None,
        overlap: Overlap = Overlap.SKIP,
    ) -> Cron:
        """The same in this machine's time zone, looked up now and kept by name (CRON-3)."""
        return cls(expression, host_zone(), misfire, grace, overlap)

    def as_stored_in(self, tz: str) -> Cron:
        """The same in a zone that may be unknown here, because a machine with other zone data stored it.

        The zone is looked up when it is first needed; only then a ScheduleError is raised if it is unknown.
        """
        stored = object.__new__(Cron)
        for name in ("expression", "misfire", "grace", "overlap", "_plan", "_source"):
            object.__setattr__(stored, name, getattr(self, name))
        object.__setattr__(stored, "tz", tz)
        return stored

    def __getattr__(self, name: str) -> Zone:
        if name != "_zone":  # `as_stored_in` leaves it unset
            raise AttributeError(f"'Cron' object has no attribute {name!r}", name=name, obj=self)
        object.__setattr__(self, "_zone", zone_named(self.tz))
        return self._zone

    @property
    def has_seconds(self) -> bool:
        """True if the expression has six fields, and so needs Precision.SECOND (CRON-1)."""
        return self._plan.has_seconds

    @property
    def is_fixed(self) -> bool:
        """True if it names times of day, not elapsed time (CRON-3)."""
        return self._plan.is_fixed

    @property
    def is_resolved(self) -> bool:
        """False while it has an `H`, whose value depends on the job (CRON-12)."""
        return not isinstance(self._plan, Unresolved)

    def resolved(self, scope_id: str, job_id: str) -> Cron:
        """The schedule of one job: the same, with each `H` replaced by the job's value (CRON-12).

        `H/15` still counts as `*` in CRON-2 and CRON-3, although the resolved expression has a range.
        """
        if self.is_resolved:
            return self
        plain = object.__new__(Cron)
        seed = Seed(scope_id, job_id)
        object.__setattr__(plain, "expression", parse(self.expression, seed).plain)
        object.__setattr__(plain, "_plan", plan_for(self.expression, seed))
        object.__setattr__(plain, "_source", (self.expression, seed))
        for name in ("tz", "misfire", "grace", "overlap"):
            object.__setattr__(plain, name, getattr(self, name))
        return plain

    def next_after(self, instant: datetime) -> datetime:
        """The first occurrence strictly after `instant`, in UTC."""
        try:
            since = instant - EPOCH
            start = since.days * DAY + since.seconds
        except Exception:
            raise _not_an_instant(instant) from None
        second = self._zone.next(self._plan, start)
        try:
            return datetime.fromtimestamp(second, UTC)
        except (ValueError, OverflowError, OSError):  # some platforms take no negative number
            return self._instant(second, "after", instant)

    def previous_before(self, instant: datetime) -> datetime:
        """The last occurrence strictly before `instant`, in UTC."""
        since = _since_epoch(instant)
        second = since.days * DAY + since.seconds - (0 if since.microseconds else 1)
        return self._instant(self._zone.previous(self._plan, second), "before", instant)

    def matches(self, instant: datetime) -> bool:
        """True if `instant` is exactly an occurrence."""
        since = _since_epoch(instant)
        second = since.days * DAY + since.seconds
        return not since.microseconds and self._zone.next(self._plan, second - 1) == second

    def count(self, first: datetime, last: datetime) -> int:
        """The number of occurrences from `first` to `last`, both included."""
        since, until = _since_epoch(first), _since_epoch(last)
        second = since.days * DAY + since.seconds + (1 if since.microseconds else 0)
        return self._zone.count(self._plan, second, until.days * DAY + until.seconds)

    def describe(self) -> str:
        """The schedule as an English sentence."""
        if not self.is_resolved:
            return f"{self.expression} ({self.tz}), where H is a value of its own for each job."
        return sentence(parse(*self._source) if self._source else parse(self.expression), self.tz)

    def _instant(self, second: int, side: str, instant: datetime) -> datetime:
        try:
            return EPOCH + timedelta(0, second)
        except OverflowError:
            reason = f"{self.expression!r} has no occurrence {side} {instant.isoformat()} within the years 1 to 9999"
            raise ScheduleError("instant", reason) from None

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        expression, seed = self._source or (self.expression, None)
        return _unpickled, (expression, self.tz, self.misfire, self.grace, self.overlap, seed)


def _unpickled(
    expression: str, tz: str, misfire: Misfire, grace: timedelta | None, overlap: Overlap, seed: Seed | None
) -> Cron:
    stored = Cron(expression, "UTC", misfire, grace, overlap).as_stored_in(tz)
    return stored if seed is None else stored.resolved(*seed)


def _check_tz(field: str, value: object) -> str:
    tz = check_text(field, value)
    if len(tz) > MAX_NAME:
        raise ScheduleError(field, f"has {len(tz)} characters; give an IANA name such as 'Europe/Berlin'")
    return tz


_check_fields = Checks(
    "trigger.",
    expression=check_text,
    tz=_check_tz,
    misfire=member(Misfire),
    grace=optional(check_wait),
    overlap=member(Overlap),
)


def check_cron(cron: Cron) -> Cron:
    """Return a Cron with valid fields, or raise; it may have been made without its constructor.

    Its time zone need not be known here: see `Cron.as_stored_in`.
    """
    _check_fields(cron)
    if getattr(cron, "_source", None) is not None:  # resolved for one job: a definition keeps only the resolved text
        return Cron(cron.expression, "UTC", cron.misfire, cron.grace, cron.overlap).as_stored_in(cron.tz)
    object.__setattr__(cron, "_plan", plan_for(cron.expression))
    object.__setattr__(cron, "_source", None)
    return cron


def _since_epoch(instant: datetime) -> timedelta:
    if is_a(instant, datetime):
        try:
            return instant - EPOCH
        except Exception:  # no time zone, or a foreign tzinfo that raises
            pass
    raise _not_an_instant(instant)


def _not_an_instant(given: object) -> ScheduleError:
    if is_a(given, datetime):
        return ScheduleError("instant", "must be an aware datetime, this one has no time zone")
    return ScheduleError("instant", f"must be an aware datetime, not {kind_of(given)}")
