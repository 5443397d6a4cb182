"""Errors cross process boundaries whole. No rule: it is about errors as Python values."""

from __future__ import annotations

import pickle

import pytest

from rota import JobNotFound, PayloadTooLarge, RotaError, ScheduleError
from rota.errors import InvalidCron, NotSettled


@pytest.mark.parametrize(
    "error",
    [JobNotFound("a", "b"), PayloadTooLarge(2, 1), ScheduleError("field", "why"), InvalidCron("* *", "no", position=2)],
)
def test_a_pickled_error_keeps_its_message_and_its_data(error: RotaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_every_error_is_caught_as_a_rota_error() -> None:
    assert issubclass(NotSettled, RotaError)
