"""`python -m tests.faults`: real processes, real servers, real faults, and a checker that believes nobody."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.faults.broken import BROKEN
from tests.faults.power import SOUND, prove
from tests.faults.rows import FAULTS, QUICK
from tests.faults.scene import Fault, Result, play
from tests.faults.stores import PostgresStore, SqliteStore, Store
from tests.servers import PostgresServer

_SHOWN = 12  # violations of a row
_COLUMNS = f"{'fault':34}{'store':10}{'injected':>9}{'runs':>7}{'lost':>6}{'doubled':>9}{'refused':>9}{'recovery':>10}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the same plan again")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default=None)
    parser.add_argument("--seconds", type=float, default=None, help="how long faults are injected in each row")
    parser.add_argument("--quick", action="store_true", help="a few short rows, about a minute")
    parser.add_argument("--minutes", type=float, default=None, help="all rows again and again, for so long")
    parser.add_argument(
        "--broken", nargs="?", const="all", choices=["all", SOUND, *BROKEN], help="instead: are broken backends caught?"
    )
    parser.add_argument("--seeds", type=int, default=20, help="with --broken: how often each is played")
    parser.add_argument("--keep", type=Path, default=None, help="keep journals, events and logs in this folder")
    return parser.parse_args()


def _stores(options: argparse.Namespace) -> list[str]:
    return [options.store] if options.store else ["sqlite", "postgres"]


def _chosen(options: argparse.Namespace, store: str) -> list[Fault]:
    everything = [fault.name for fault in FAULTS]
    names = QUICK[store] if options.quick and not options.only else everything
    return [each for each in FAULTS if each.name in names and options.only in each.name and store in each.stores]


def _line(result: Result) -> str:
    return (
        f"{result.fault:34}{result.store:10}{result.injected:>9}{result.runs:>7}{result.lost:>6}{result.doubled:>9}"
        f"{result.refused:>9}{result.recovery:>8.1f} s"
    )


class Suite:
    """All rows, once or until the time is over; those of the two stores beside each other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._seed = options.seed if options.seed is not None else Random().randrange(1_000_000)
        self._seconds = options.seconds or (5.0 if options.quick else 8.0)
        self._end = time.monotonic() + 60 * (options.minutes or 0)
        self._server: PostgresServer | None = None
        self.results: list[Result] = []

    def run(self) -> int:
        print(f"seed {self._seed}\n{_COLUMNS}", flush=True)
        with tempfile.TemporaryDirectory(prefix="rota-faults-") as scratch:
            try:
                asyncio.run(self._all(self._options.keep or Path(scratch)))
            finally:
                if self._server is not None:
                    self._server.stop()
        return self._verdict()

    async def _all(self, folder: Path) -> None:
        await asyncio.gather(*[self._lane(store, folder) for store in _stores(self._options)])

    async def _lane(self, store: str, folder: Path) -> None:
        for number, fault in enumerate(self._rows(store)):
            await self._play(fault, store, folder / f"{store}-{number:03}", Random(f"{self._seed}-{store}-{number}"))

    def _rows(self, store: str) -> Iterator[Fault]:
        while True:
            yield from _chosen(self._options, store)
            if time.monotonic() >= self._end:
                return

    async def _play(self, fault: Fault, store: str, folder: Path, rng: Random) -> None:
        await asyncio.to_thread(folder.mkdir, parents=True)
        result = await play(fault, self._store(store, folder), folder, rng, self._seconds)
        self.results.append(result)
        notes = [f"    note: {each}" for each in result.notes]
        wrong = [f"    {each}" for each in result.violations]
        more = [f"    … and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        print("\n".join([_line(result), *notes, *wrong[:_SHOWN], *more]), flush=True)

    def _store(self, name: str, folder: Path) -> Store:
        if name == "sqlite":
            return SqliteStore(folder)
        if self._server is None:
            self._server = PostgresServer(settings=("fsync=on",)).start()
        return PostgresStore(self._server)

    def _verdict(self) -> int:
        wrong = sum(len(result.violations) for result in self.results)
        injected, runs = sum(each.injected for each in self.results), sum(each.runs for each in self.results)
        if not self.results:
            print("no such row", file=sys.stderr)
            return 2
        print(f"{injected} faults, {runs} runs: " + ("every invariant holds" if not wrong else f"{wrong} violations"))
        return 1 if wrong else 0


def main() -> int:
    options = _options()
    logging.getLogger("rota").addHandler(logging.NullHandler())  # the client's; the nodes' logs are in the folder
    if options.broken:
        return prove(options.broken, options.seeds, _stores(options))
    return Suite(options).run()


if __name__ == "__main__":
    sys.exit(main())
