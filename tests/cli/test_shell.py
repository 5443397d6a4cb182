"""The command line as a whole: version, help, errors, and what it imports.

No rule: the command line is a shell over the scheduler.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rota.cli import main
from rota.cli.shell import Commands
from rota.errors import InvalidCron, JobNotFound, RotaError, ScheduleError


def test_version_names_the_installed_distribution() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert result.output.startswith(f"rota {version('rota')} ")


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert main.commands[command].help


def test_the_list_of_commands_has_whole_sentences() -> None:
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Commands:")[2].strip().splitlines()
    assert len(listed) == len(main.commands), "one line each"
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


@pytest.mark.parametrize(
    ("error", "exit_code", "shown"),
    [
        (ScheduleError("trigger.tz", "no such zone"), 2, "Error: trigger.tz: no such zone\n"),
        (
            InvalidCron("* * x * *", "is no day", position=4, part="day"),
            2,
            "Error: is no day (day, character 5)\n    * * x * *\n        ^\n",
        ),
        (JobNotFound("a", "default"), 1, "Error: there is no job 'a' in scope 'default'\n"),
    ],
)
def test_an_error_of_rota_becomes_a_message_and_an_exit_code(error: RotaError, exit_code: int, shown: str) -> None:
    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.output) == (exit_code, shown)


def test_asking_for_help_loads_nothing_heavy() -> None:
    code = (
        "import json, sys\n"
        "from rota.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded.isdisjoint({"rich", "pytest", "hypothesis", "dependency_injector", "rota_contracts", "rota_backends"})


def test_the_installed_command_runs() -> None:
    rota = Path(sys.executable).with_name("rota")
    done = subprocess.run([rota, "version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("rota ")
