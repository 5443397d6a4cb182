"""Does the suite notice a backend that breaks a rule? Each under the fault it fears, with many seeds, on both stores.

Every one has to be caught in 19 of 20 seeds; the sound backend, under the same faults and as impatiently, never.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from random import Random

from attrs import evolve, frozen

from tests.faults.broken import BROKEN
from tests.faults.rows import FAULTS
from tests.faults.scene import Fault, play
from tests.faults.stores import PostgresStore, SqliteStore, Store
from tests.servers import PostgresServer

SOUND = "sound"
_SECONDS = 5.0
_ENOUGH = 0.95  # of the seeds
_SHOWN = 4  # violations of a sound backend
# The fault under which a rule's absence shows; the others would show it too, later.
FEARS = {
    "unfenced": "SIGSTOP before settling",
    "acknowledges-first": "kill -9 at random",
    "reads-then-writes": "no fault",
    "node-clock": "clocks of nodes wrong by minutes",
    "letters-later": "crash while dead-lettering",
    "no-occurrence-key": "many nodes on one second",
    "loses-facts": "no fault",
    "impatient": "no fault",
}
_COLUMNS = f"{'backend':22}{'store':10}{'fault':36}{'caught':>10}   by"


@frozen
class Trial:
    """One backend on one store with one seed."""

    broken: str
    store: str
    seed: int
    fault: Fault

    async def violations(self, server: PostgresServer | None) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="rota-power-") as scratch:
            folder = Path(scratch)
            store: Store = SqliteStore(folder) if server is None else PostgresStore(server)
            broken = None if self.broken == SOUND else self.broken
            row = play(self.fault, store, folder, Random(self.seed), _SECONDS, broken=broken, is_patient=False)
            return [each for each in (await row).violations if not each.startswith("S0:")]  # an idle fault is no catch


def _fault(name: str) -> Fault:
    return evolve(next(each for each in FAULTS if each.name == name), stores=("sqlite", "postgres"))


def _trials(broken: str, store: str, seeds: int) -> list[Trial]:
    faults = [FEARS[broken]] if broken != SOUND else sorted(set(FEARS.values()))
    if broken == SOUND and store == "sqlite":
        faults.remove(FEARS["node-clock"])  # there the store's clock is the machine's
    return [Trial(broken, store, seed, _fault(fault)) for seed, fault in zip(range(seeds), cycle(faults), strict=False)]


class Power:
    """The table: how often each was caught."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._slots = asyncio.Semaphore(os.cpu_count() or 1)
        self._failed = 0

    async def run(self, names: Sequence[str], stores: Sequence[str]) -> int:
        print(_COLUMNS, flush=True)
        for store in stores:
            server = PostgresServer(settings=("fsync=on",)).start() if store == "postgres" else None
            try:
                for broken in names:
                    await self._line(broken, store, server)
            finally:
                if server is not None:
                    server.stop()
        return 1 if self._failed else 0

    async def _line(self, broken: str, store: str, server: PostgresServer | None) -> None:
        trials = _trials(broken, store, self._seeds)
        found = await asyncio.gather(*[self._one(trial, server) for trial in trials])
        caught = sum(bool(each) for each in found)
        invariants = {each.partition(":")[0] for violations in found for each in violations}
        by = " ".join(sorted(invariants, key=lambda name: int(name[1:])))
        under = "each of these" if broken == SOUND else FEARS[broken]
        print(f"{broken:22}{store:10}{under:36}{caught:>4} of {self._seeds:<2}   {by}", flush=True)
        if broken == SOUND:
            self._accused(trials, found)
        self._failed += caught > 0 if broken == SOUND else caught < self._seeds * _ENOUGH

    def _accused(self, trials: Sequence[Trial], found: Sequence[Sequence[str]]) -> None:
        for trial, violations in zip(trials, found, strict=True):
            for each in violations[:_SHOWN]:
                print(f"    {trial.fault.name}, seed {trial.seed}: {each}", flush=True)

    async def _one(self, trial: Trial, server: PostgresServer | None) -> list[str]:
        async with self._slots:
            return await trial.violations(server)


def prove(only: str, seeds: int, stores: Sequence[str]) -> int:
    """All of them, or one; 1 if one escaped too often, or the sound one was suspected."""
    names = [SOUND, *BROKEN] if only == "all" else [only]
    return asyncio.run(Power(seeds).run(names, stores))
