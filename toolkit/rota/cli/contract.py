"""`rota contract`: test a backend against the contract, without writing a test file."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from rota.cli.app import load


@click.command(
    "contract",
    short_help="Test a backend against the contract, and print the verdict.",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("harness", metavar="MODULE:HARNESS")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGS]...")
def contract_command(harness: str, pytest_args: tuple[str, ...]) -> None:
    """Run the contract pack against the harness that MODULE:HARNESS makes, and print the verdict.

    HARNESS is a callable without arguments that returns a new harness, usually a BackendHarness; MODULE is also
    searched in the current folder. Three contracts are tried: the nodes, the backend alone (PortContract), and for a
    CasBackend its store (StoreContract). Further arguments go to pytest:

    \b
        rota contract mypkg.testing:harness
        rota contract mypkg.testing:harness -k KEY-1
        rota contract mypkg.testing:harness --rota-report=report.json

    Exit code 0: conformant, also with deviations. "One process only" in the verdict means that the backend is durable,
    but the harness cannot open it in other processes (elsewhere=...). A part of the pack (-k) gets no verdict.
    """
    from rota_contracts.runner import main, need_pytest

    need_pytest()  # before importing the harness, which needs pytest too and would not say how to install it
    _try(harness, load(harness, "MODULE:HARNESS"))
    sys.exit(main(harness, list(pytest_args)))


def _try(spec: str, make: Any) -> None:
    """Make one harness, so that a wrong object is reported once and not by every clause."""
    from rota_contracts.harness import why_no_harness
    from rota_contracts.runner import let_go

    if not callable(make):
        _refuse(f"{spec!r} is not callable: name a function without arguments that makes a Harness")
    try:
        made = make()
    except Exception as error:
        _refuse(f"{spec!r}, called without arguments, raised {type(error).__name__}: {error}")
    if problem := why_no_harness(made):
        _refuse(f"{spec!r}, called without arguments, gives {problem}")
    let_go(made)


def _refuse(sentence: str) -> NoReturn:
    raise click.BadParameter(sentence, param_hint="MODULE:HARNESS")
