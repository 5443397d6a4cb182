"""The commands, from what they say of themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from rota.cli import main

_INTRODUCTION = """\
# The command line

`rota` is installed with the package. Wrong input, an application that cannot be loaded included, ends with exit code 2,
anything else that Rota refuses with 1. Errors are messages; `rota --traceback …` shows what is behind one, as does
`ROTA_TRACEBACK=1` in the environment. Made from the commands' own help.
"""


def cli_page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION]
    for name, command in sorted(main.commands.items()):
        lines += _command(name, command)
    return "\n".join(lines)


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"rota {name}")
    yield f"## rota {name}\n\n```text\n{' '.join(command.get_usage(context).split()).removeprefix('Usage: ')}\n```\n"
    yield _help(command.help or "")
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield "\n| option | meaning | default |\n|---|---|---|"
        yield from map(_option, options)
    yield ""


def _help(text: str) -> str:
    """Paragraphs as they are; what click must not wrap becomes a block."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_block(each) if each.lstrip().startswith("\b") else each for each in paragraphs)


def _block(paragraph: str) -> str:
    lines = [line.strip() for line in paragraph.replace("\b", "").strip().splitlines()]
    return "```sh\n" + "\n".join(lines) + "\n```"


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{each}`" for each in option.opts)
    metavar = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    default = option.default if option.show_default else ""
    return f"| {names}{metavar} | {option.help} | {default} |"
