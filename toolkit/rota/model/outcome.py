"""What a handler may say about its attempt. Returning None is `Succeeded()`, raising is `Failed` (RETRY-3)."""

from __future__ import annotations

from datetime import timedelta

from attrs import field, frozen

from rota.errors import ScheduleError
from rota.model.validation import check_duration

_MOST_RECORDS = 2**63 - 1  # what every store can keep


def _check_records(_: object, __: object, value: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_RECORDS:
        raise ScheduleError("records_processed", "must be None or a whole number from 0 to 2**63 - 1")


def _check_after(_: object, __: object, value: timedelta | None) -> None:
    if value is not None:
        check_duration("after", value, zero=True)


@frozen
class Succeeded:
    """The attempt reached its end."""

    records_processed: int | None = field(default=None, validator=_check_records)


@frozen
class Failed:
    """The attempt failed; `permanent` dead-letters the run at once."""

    reason: str
    permanent: bool = False


@frozen
class Retry:
    """Try again, after exactly `after`, or after the policy's backoff."""

    after: timedelta | None = field(default=None, validator=_check_after)


JobResult = Succeeded | Failed | Retry
