"""Errors in the application's own code, told as far as they concern that code: neither our frames nor a library's."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from rota.cli.shell import Refused, asked_for_traceback

_NEVER_OWN = sys.stdlib_module_names | {"rota", "rota_backends", "rota_contracts"}
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_WAY_OUT = "The whole traceback: rota --traceback {command} …, or ROTA_TRACEBACK=1"


@contextmanager
def own_code(failure: str) -> Generator[None]:
    """Whatever the application's code raises in this block becomes a message that begins with `failure`."""
    try:
        yield
    except click.ClickException:
        raise
    except (Exception, SystemExit) as error:  # the second: a script that ends itself would end the node without a word
        raise Refused("".join((f"{failure}\n", *_told(error), _way_out())).rstrip()) from error


def is_own(frame: FrameType) -> bool:
    """True where the code is neither Rota's nor of the standard library."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in _NEVER_OWN


def _told(error: BaseException) -> Iterator[str]:
    """As Python tells it, without the steps that are not the application's."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if is_own(step[0])]
    own = [step for step in steps if not _LIBRARIES & set(Path(step[0].f_code.co_filename).parts)]
    yield from traceback.StackSummary.extract(iter(own or steps)).format()  # an application may be installed as one
    yield from traceback.format_exception_only(error)


def _way_out() -> str:
    context = click.get_current_context()
    return "" if asked_for_traceback(context) else _WAY_OUT.format(command=context.info_name)
