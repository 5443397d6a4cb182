"""The command line. Commands import their modules when they are called, so that `rota --help` is quick."""

from __future__ import annotations

import click

from rota.cli.contract import contract_command
from rota.cli.cron import explain_command, next_command
from rota.cli.db import db_group
from rota.cli.demo.command import demo_command
from rota.cli.doctor import doctor_command
from rota.cli.run import run_command
from rota.cli.shell import Commands, traceback_option
from rota.cli.version import version_command


@click.group("rota", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@traceback_option
def main(traceback: bool) -> None:
    """Rota: typed background jobs for asyncio.

    Run a node, watch example jobs, explain cron expressions, test a backend against the contract.
    """


main.add_command(contract_command)
main.add_command(db_group)
main.add_command(demo_command)
main.add_command(doctor_command)
main.add_command(explain_command)
main.add_command(next_command)
main.add_command(run_command)
main.add_command(version_command)
