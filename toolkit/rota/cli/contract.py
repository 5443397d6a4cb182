"""`rota contract`: hold a backend to the contract, without writing a test file."""

from __future__ import annotations

import sys

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
    the current folder too. What follows goes to pytest:

    \b
        rota contract mypkg.testing:harness
        rota contract mypkg.testing:harness -k KEY-1
        rota contract mypkg.testing:harness --rota-report=report.json

    Exit code 0: conformant, deviations included. A part of the pack (-k) gets no verdict.
    """
    from rota_contracts.runner import main, need_pytest

    need_pytest()  # before the harness is imported, which needs it too and would not say where it comes from
    if not callable(load(harness, "MODULE:HARNESS")):
        raise click.BadParameter(
            f"{harness!r} is not callable: name a class or function that makes a Harness", param_hint="MODULE:HARNESS"
        )
    sys.exit(main(harness, list(pytest_args)))
