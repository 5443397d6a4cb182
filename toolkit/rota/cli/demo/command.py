"""`rota demo`."""

from __future__ import annotations

import click

from rota.cli.shell import Seconds


@click.command("demo")
@click.option(
    "--seconds", type=Seconds(0, 3600), default=26.0, show_default=True, metavar="N", help="How long to play."
)
@click.option("--plain", is_flag=True, help="Lines instead of the live picture; also when the output is no terminal.")
@click.option(
    "--backend", "url", metavar="URL",
    help="An empty store to play on, for instance memory: or sqlite:demo.db.  [default: a temporary SQLite file]",
)  # fmt: skip
def demo_command(seconds: float, plain: bool, url: str | None) -> None:
    """Watch example jobs on accelerated time, without any server.

    A shop's jobs, 26 minutes in 26 seconds: one fails, retries and becomes a dead letter that is replayed later; one
    takes longer than its interval; one is paused and resumed; four collide at the full hour on three slots; one runs on
    events; and a deploy takes the node away for three minutes. Only the clock is accelerated: the jobs are in a SQLite
    file, as those of an application would be.
    """
    import logging
    import os
    import sys

    from rota.cli.demo import play

    logging.getLogger("rota").addHandler(logging.NullHandler())  # the view shows the failures
    live = sys.stdout.isatty() and not plain and os.environ.get("TERM") != "dumb"
    play(seconds, click.echo, live=live, url=url if url is None or ":" in url else f"{url}:")
