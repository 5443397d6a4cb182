"""The commands, from their own help texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from rota.cli import main

_INTRODUCTION = """\
# The command line

`rota` is installed with the package. This page is made from the commands' own help. Errors are one message; with
`rota --traceback …`, or `ROTA_TRACEBACK=1` in the environment, the traceback is shown too.

| exit code | meaning |
|---|---|
| 0 | done; a node has left after draining |
| 1 | Rota refused something, a check found a problem, or a handler did not end when it was cancelled |
| 2 | wrong input, or an application that cannot be loaded |
| 130, 143 | ended by Ctrl-C or SIGTERM before there was anything to drain |
"""


def cli_page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_table(main), *_below(main, "rota", "##")])


def _below(group: click.Group, path: str, marks: str) -> Iterator[str]:
    """The commands of a group, each followed by those below it."""
    for name, command in sorted(group.commands.items()):
        yield from _command(f"{path} {name}", command, marks)
        if isinstance(command, click.Group):
            yield from _below(command, f"{path} {name}", f"{marks}#")


def _command(path: str, command: click.Command, marks: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"{marks} {path}\n\n```text\n{' '.join(command.get_usage(context).split()).removeprefix('Usage: ')}\n```\n"
    yield f"{_help(command.help or '')}\n"
    yield from _table(command)


def _table(command: click.Command) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield "| option | meaning | default |\n|---|---|---|"
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
