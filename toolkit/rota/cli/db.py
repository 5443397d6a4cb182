"""`rota db`: the schema of a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

import click

if TYPE_CHECKING:
    from rota.backend import Backend


class Migrates(Protocol):
    """The additional methods of a backend with its own schema."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the applied migrations."""
        ...

    async def schema_version(self) -> tuple[int, int]:
        """The stored version (0: none), and the version that this code needs."""
        ...

    def migration_script(self) -> str:
        """All migrations as one SQL script."""
        ...


_url = click.argument("url", envvar="ROTA_BACKEND", required=False, metavar="[URL]")


@click.group("db")
def db_group() -> None:
    """Create, check and print the schema of a database.

    URL names the store, for instance postgresql://user@host/database?schema=jobs; without it ROTA_BACKEND is used. Put
    a password into PGPASSWORD or a password file.
    """


@db_group.command("migrate")
@_url
def migrate_command(url: str | None) -> None:
    """Bring the schema up to date; safe while nodes run and start."""
    for name in (done := asyncio.run(_backend(url).migrate())):
        click.echo(f"applied {name}")
    if not done:
        click.echo("nothing to do")


@db_group.command("status")
@_url
def status_command(url: str | None) -> None:
    """Show the version of the schema; exit code 1 if this version of Rota needs another one."""
    stored, wanted = asyncio.run(_backend(url).schema_version())
    click.echo(f"schema version {stored}, this version of rota works with {wanted}")
    if stored != wanted:
        raise click.ClickException(
            "upgrade rota on this node"
            if stored > wanted
            else "run `rota db migrate`, or start a node that may migrate"
        )


@db_group.command("print")
@_url
def print_command(url: str | None) -> None:
    """Print all migrations as one SQL script, which you can apply to an empty schema. Does not connect."""
    click.echo(_backend(url).migration_script())


def _backend(url: str | None) -> Migrates:
    from rota.discovery import open_backend

    if not url:
        raise click.UsageError("give the URL of the store, or set ROTA_BACKEND")
    backend: Backend = open_backend(url)
    if not hasattr(backend, "migration_script"):
        raise click.ClickException(
            f"the backend {backend.name!r} has no migrations: the first node creates its schema when it starts"
        )
    return cast("Migrates", backend)
