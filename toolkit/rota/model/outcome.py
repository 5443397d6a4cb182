"""The return values of handlers. None means `Succeeded()`, raising means `Failed` (RETRY-3)."""

from __future__ import annotations

from datetime import timedelta

from attrs import frozen

from rota.model.validation import MAX_STORED_WHOLE, Checks, check_flag, check_text, check_wait, optional, whole


@frozen
class Succeeded:
    """The attempt succeeded."""

    records_processed: int | None = None

    def __attrs_post_init__(self) -> None:
        _check_succeeded(self)


_check_succeeded = Checks(records_processed=optional(whole(0, MAX_STORED_WHOLE)))


@frozen
class Failed:
    """The attempt failed; `permanent` dead-letters the run at once."""

    reason: str
    permanent: bool = False

    def __attrs_post_init__(self) -> None:
        _check_failed(self)


_check_failed = Checks(reason=check_text, permanent=check_flag)


@frozen
class Retry:
    """Try again after exactly `after`, or (None) after the policy's backoff."""

    after: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        _check_retry(self)


_check_retry = Checks(after=optional(check_wait))

JobResult = Succeeded | Failed | Retry
