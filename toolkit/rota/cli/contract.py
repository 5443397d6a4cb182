"""`rota contract`: hold a backend to the contract, without writing a test file."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from rota.cli.app import load


@click.command(
    "contract",
    short_help="Hold a backend to the contract, and give the verdict.",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("harness", metavar="MODULE:HARNESS")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGS]...")
def contract_command(harness: str, pytest_args: tuple[str, ...]) -> None:
    """Run the contract pack against the harness that MODULE:HARNESS makes, and give the verdict.

    HARNESS is a callable without arguments that returns a fresh harness, usually a BackendHarness; MODULE is found from
    the current folder too. Three contracts are tried: the nodes, the backend by itself (PortContract), and for a
    CasBackend its store (StoreContract). Further arguments go to pytest:

    \b
        rota contract mypkg.testing:harness
        rota contract mypkg.testing:harness -k KEY-1
        rota contract mypkg.testing:harness --rota-report=report.json

    Exit code 0: conformant, deviations included. "One process only" in the verdict means that the backend is durable,
    and that the harness has no way to open it in other processes (elsewhere=...). A part of the pack (-k) gets no
    verdict.
    """
    from rota_contracts.runner import main, need_pytest

    need_pytest()  # before the harness is imported, which needs it too and would not say where it comes from
    _try(harness, load(harness, "MODULE:HARNESS"))
    sys.exit(main(harness, list(pytest_args)))


def _try(spec: str, make: Any) -> None:
    """Make one harness, so that what is none is said once and not by every clause."""
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
