"""`python -m tests.faults.power`: does the suite notice a backend that breaks a rule? Each under the fault it fears.

The table says how many of the seeds caught it; every one has to be caught every time, or nearly (19 of 20).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random

from attrs import evolve

from tests.faults.rows import DEAD_LETTERS, FAULTS
from tests.faults.scene import Fault, play
from tests.faults.stores import SqliteStore

_SECONDS = 10.0  # as in make faults
# The fault under which a rule's absence shows; the others would show it too, later.
FEARS = {
    "unfenced": "SIGSTOP past the lease",
    "acknowledges-first": "kill -9 at random",
    "reads-then-writes": "no fault",
    "node-clock": "no fault",
    "letters-later": "crash while dead-lettering",
    "no-occurrence-key": "six nodes on one second",
    "loses-facts": "no fault",
    "impatient": "no fault",
}


def _fault(broken: str) -> Fault:
    fault = next(each for each in (*FAULTS, DEAD_LETTERS) if each.name == FEARS[broken])
    return evolve(fault, skews=(-60.0, 0.0, 60.0)) if broken == "node-clock" else fault


def _is_caught(broken: str, seed: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="rota-power-") as scratch:
        folder = Path(scratch)
        row = play(_fault(broken), SqliteStore(folder), folder, Random(seed), _SECONDS, broken=broken)
        return asyncio.run(row).violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", choices=sorted(FEARS), default=None)
    options = parser.parse_args()
    missed = 0
    for broken in [options.only] if options.only else FEARS:
        found = [_is_caught(broken, seed) for seed in range(options.seeds)]
        caught = sum(bool(each) for each in found)
        by = sorted({each.partition(":")[0] for violations in found for each in violations})
        print(f"{broken:22}{FEARS[broken]:28}caught {caught} of {options.seeds}   {' '.join(by)}", flush=True)
        missed += caught < options.seeds * 0.95
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
