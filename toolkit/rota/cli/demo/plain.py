"""The demo as lines, for pipes, logs and terminals without rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from attrs import define, field

from rota import Event
from rota.cli.demo.look import Moment, decision_text, event_text

Say = Callable[[str], None]


@define
class PlainView:
    """Prints the changes since the last moment."""

    say: Say
    _printed: int = 0
    _counts: dict[tuple[str, str, datetime], int] = field(factory=dict)

    def show(self, moment: Moment, events: list[Event], acts: list[tuple[datetime, str]]) -> None:
        lines = [(at, f"** {sentence}") for at, sentence in acts[self._printed :]]
        lines += [(event.occurred_at or moment.now, event_text(event)) for event in events]
        lines += self._new_decisions(moment)
        self._printed = len(acts)
        for at, line in sorted(lines, key=lambda each: each[0]):
            self.say(f"{at:%H:%M:%S}  {line}")

    def _new_decisions(self, moment: Moment) -> Iterator[tuple[datetime, str]]:
        for job_id, decision in reversed(moment.decisions):
            key = (job_id, decision.kind.value, decision.first)
            if self._counts.get(key) != decision.count:
                self._counts[key] = decision.count
                yield decision.last, f"decided: {job_id} {decision_text(decision)}"

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None: ...
