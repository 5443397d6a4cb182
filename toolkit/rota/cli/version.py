"""`rota version`."""

from __future__ import annotations

import click


@click.command("version")
def version_command() -> None:
    """Show the installed versions of Rota and Python."""
    import platform
    from importlib.metadata import version

    click.echo(f"rota {version('rota')} (Python {platform.python_version()})")
