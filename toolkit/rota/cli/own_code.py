"""Prints errors in the application's own code, without frames of Rota and of libraries."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from rota.cli.shell import InvalidInput, asked_for_traceback

_NEVER_OWN = sys.stdlib_module_names | {"rota", "rota_backends", "rota_contracts"}
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_WAY_OUT = "The whole traceback: rota --traceback {command} …, or ROTA_TRACEBACK=1"


@contextmanager
def own_code(failure: str) -> Generator[None]:
    """Turn an exception of the application's code into a message that begins with `failure`."""
    try:
        yield
    except click.ClickException:
        raise
    except (Exception, SystemExit) as error:  # a script that calls sys.exit() would end the node without a message
        raise InvalidInput("".join((f"{failure}\n", *_own_traceback(error), _way_out())).rstrip()) from error


def is_own(frame: FrameType) -> bool:
    """True for code that is neither Rota's nor the standard library's."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in _NEVER_OWN


def _own_traceback(error: BaseException) -> Iterator[str]:
    """The traceback with the application's frames only."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if is_own(step[0])]
    own = [step for step in steps if not _LIBRARIES & set(Path(step[0].f_code.co_filename).parts)]
    yield from traceback.StackSummary.extract(iter(own or steps)).format()  # the application may be in site-packages
    yield from traceback.format_exception_only(error)


def _way_out() -> str:
    context = click.get_current_context()
    return "" if asked_for_traceback(context) else _WAY_OUT.format(command=context.info_name)
