"""The in-process backend: dicts, a heap of due jobs, buckets of ready lanes, a deque of facts. It forgets with its
process."""

from __future__ import annotations

from rota_backends.inprocess.jobs import Jobs
from rota_backends.inprocess.occurrences import Occurrences
from rota_backends.inprocess.reading import Reading
from rota_backends.inprocess.work import Work


class InProcessBackend(Jobs, Occurrences, Work, Reading):
    """Jobs live as long as this object. Several schedulers may share it: each is a node."""
