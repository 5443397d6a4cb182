"""`rota demo`."""

from __future__ import annotations

import click


@click.command("demo")
@click.option(
    "--seconds", type=click.FloatRange(0, 3600), default=26.0, show_default=True, metavar="N", help="How long to play."
)
@click.option("--plain", is_flag=True, help="Lines instead of the live picture; also when the output is no terminal.")
def demo_command(seconds: float, plain: bool) -> None:
    """Watch example jobs on accelerated time, without any server.

    A shop's jobs, 26 minutes in 26 seconds: one fails, retries and becomes a dead letter that is replayed later; one
    takes longer than its interval; one is paused and resumed; four collide at the full hour on three slots; one runs on
    events. Only the clock is accelerated.
    """
    import os
    import sys

    from rota.demo import play

    live = sys.stdout.isatty() and not plain and os.environ.get("TERM") != "dumb"
    play(seconds, click.echo, live=live)
