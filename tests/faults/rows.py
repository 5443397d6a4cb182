"""The rows of the table: each fault with what it is allowed to excuse, and how it is seen that it really happened."""

from __future__ import annotations

from tests.faults import on_postgres, on_processes, on_sqlite
from tests.faults.burst import KEEP, burst, burst_ran
from tests.faults.herd import herd, herd_is_served
from tests.faults.scene import Effect, Fault

_SQLITE, _POSTGRES = ("sqlite",), ("postgres",)

FAULTS = [
    Fault("no fault", on_processes.nothing, is_calm=True),
    Fault("kill -9 at random", on_processes.kills, effect=Effect.LOST),
    Fault("kill -9 of all nodes", on_processes.all_killed, effect=Effect.LOST),
    Fault("crash points", on_processes.crash_points, nodes=1),
    Fault("crash while dead-lettering", on_processes.crash_while_dead_lettering, nodes=1),
    Fault("handler kills its process", on_processes.deadly, effect=Effect.LOST, check=on_processes.deadly_is_bounded),
    Fault("SIGSTOP past the lease", on_processes.stops, stops=True, effect=Effect.LOST),
    Fault("SIGSTOP before settling", on_processes.stops_before_settling, stops=True, effect=Effect.LOST),
    Fault("SIGTERM mid-run", on_processes.terms),
    Fault("SIGTERM twice", on_processes.double_terms),
    Fault("many nodes on one second", on_processes.many_nodes, nodes=6, is_calm=True),
    Fault("500 jobs on one second", herd, is_calm=True, check=herd_is_served),
    Fault("burst against retention", burst, keep=KEEP, effect=Effect.LOST, check=burst_ran),
    Fault("clock of the store steps", on_processes.stepped_clock, stops=True, steps=True),
    Fault("locked by an outside writer", on_sqlite.locked, _SQLITE, cuts=True),
    Fault("disk full", on_sqlite.disk_full, _SQLITE, cuts=True, effect=Effect.REFUSED),
    Fault("read-only", on_sqlite.read_only, _SQLITE, cuts=True, effect=Effect.REFUSED),
    Fault("server killed and restarted", on_postgres.server_killed, _POSTGRES, cuts=True, effect=Effect.REFUSED),
    Fault("sessions terminated", on_postgres.terminated, _POSTGRES, effect=Effect.REFUSED),
    Fault("connections reset", on_postgres.resets, _POSTGRES, effect=Effect.REFUSED),
    Fault("connections black-holed", on_postgres.black_holes, _POSTGRES, cuts=True, effect=Effect.REFUSED),
    Fault("some nodes black-holed", on_postgres.partitioned, _POSTGRES, cuts=True, effect=Effect.LOST),
    Fault("LISTEN half-open", on_postgres.half_open, _POSTGRES, is_calm=True),
    Fault("ambiguous commits", on_postgres.ambiguous, _POSTGRES, effect=Effect.REFUSED),
    Fault("serialisation failures", on_postgres.conflicts, _POSTGRES),
    Fault("deadlocks", on_postgres.deadlocks, _POSTGRES, cuts=True),
    Fault("server's disk full", on_postgres.disk_full, _POSTGRES, cuts=True, effect=Effect.REFUSED),
    Fault("server read-only", on_postgres.read_only, _POSTGRES, cuts=True, effect=Effect.REFUSED),
    Fault(
        "clocks of nodes wrong by minutes",
        on_processes.wrong_clocks,
        _POSTGRES,
        skews=(-300.0, 0.0, 300.0),
        is_calm=True,
    ),
]
QUICK = {
    "sqlite": ("crash points", "SIGSTOP past the lease"),
    "postgres": ("kill -9 at random", "ambiguous commits"),
}
