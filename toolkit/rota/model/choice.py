"""Enums whose lookup by value fails with a RotaError (SAFE-3)."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from rota.errors import ScheduleError


class Choice(Enum):
    """An enum: `Misfire("never")` is a ScheduleError that lists the values."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        listed = ", ".join(repr(each.value) for each in cls)
        raise ScheduleError(cls.__name__, f"there is no such value; the values are {listed}")
