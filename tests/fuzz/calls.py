"""A call with one wrong argument either works, or raises an error of the library's family that names the field.

Used by every module of this folder: describe a constructor or a method as a `Call`, and try each of its `arguments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from attrs import field, frozen

from rota.errors import RotaError, ScheduleError
from tests.fuzz.nasty import NASTY

LONGEST_ERROR = 1000  # characters: an error never repeats a large value


@frozen
class Call:
    """Something public that can be called, and arguments that it takes."""

    name: str
    make: Callable[..., Any]
    arguments: Mapping[str, Callable[[], Any]]
    fields: Mapping[str, str] = field(factory=dict)  # how errors name an argument, where it is another word


def arguments(calls: Iterable[Call]) -> list[Any]:
    """Every argument of every call, for `parametrize`."""
    return [pytest.param(call, name, id=f"{call.name}-{name}") for call in calls for name in call.arguments]


def _arguments_of(call: Call, wrong: Mapping[str, str]) -> dict[str, Any]:
    """The call's arguments, with nasty values for some of them."""
    return {name: NASTY[wrong[name]]() if name in wrong else make() for name, make in call.arguments.items()}


def _check_error(error: RotaError, call: Call, wrong: Mapping[str, str]) -> None:
    """The error names one of the wrong arguments and stays short."""
    assert isinstance(error, ScheduleError)
    fields = [call.fields.get(argument, argument) for argument in wrong]
    assert any(name in error.field for name in fields), error.field
    assert len(str(error)) < LONGEST_ERROR
    assert len(repr(error)) < LONGEST_ERROR


def made_or_refused(call: Call, wrong: Mapping[str, str]) -> Any:
    """What the call makes; None if it is refused as it should be. Every other error fails the test."""
    given = _arguments_of(call, wrong)
    try:
        return call.make(**given)
    except RotaError as error:
        _check_error(error, call, wrong)
        return None
    except Exception as error:
        error.add_note(f"{call.name} with {wrong}")
        raise
