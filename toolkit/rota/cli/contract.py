"""`rota contract`: hold a backend to the contract, without writing a test file."""

from __future__ import annotations

import sys

import click


@click.command("contract", context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
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
    from rota_contracts.runner import main

    try:
        code = main(harness, list(pytest_args))
    except (TypeError, ValueError, AttributeError, ModuleNotFoundError) as error:
        raise click.BadParameter(str(error), param_hint="MODULE:HARNESS") from error
    sys.exit(code)
