"""MODEL: the state machine finds faults by itself, without being told where to look."""

from __future__ import annotations

from tests.contracts.faulty.base import Fault, of, on
from tests.contracts.faulty.pause import PausesTicksOnly

FAULTS = [
    Fault(
        "runs of paused jobs start",
        "MODEL",
        of("MODEL", "test_every_sequence_of_calls_is_answered_as_the_model_answers_it"),
        on(PausesTicksOnly),
    ),
]
