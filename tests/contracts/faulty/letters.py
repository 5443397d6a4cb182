"""Faults in dead letters (RETRY-5)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast
from uuid import UUID

from attrs import evolve

from rota.backend import ADMINS_TOLD, Audience, Fact, NewRun, Refusal, RunQuery
from rota.model.run import JobRun, RunState
from rota.node.relay import ToAdmins
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.keys import Keys
from rota_backends.inprocess.records import Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Wrapped, nodes, on, reopened, replaced


class BareLetters(InProcessBackend):
    """A letter is only a name."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        runs = await super().runs(query)
        return [evolve(run, attempts=(), error=None) for run in runs] if query.dead_letters else runs


class JobsPayload(InProcessBackend):
    """A replay runs with the payload of the job."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        run.payload = run.definition.payload


class GoesOnCounting(InProcessBackend):
    """A replay goes on with the attempts of its letter."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        run.attempt, run.attempts = letter.attempt, letter.attempts


class JumpsTheQueue(InProcessBackend):
    """A replay takes the place its letter had."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        run.seq = letter.seq


class StillListed(InProcessBackend):
    """A letter stays in the list when it is replayed."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        self._file_letter(letter)


class ReplaysAtTheSurface(InProcessBackend):
    """A replay begins a chain of its own."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        run.depth = 0


class ReplaysNoDeeper(InProcessBackend):
    """A replay knows how deep its letter was, and not who asked for it."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        run.depth = letter.depth


class ReplaysAgain(InProcessBackend):
    """Nobody notes that a letter was replayed."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        letter.replayed_by = None
        letter.is_letter = True
        self._replays = Keys()


class ForgetsReplays(InProcessBackend):
    """That a letter was replayed is noted on the letter alone, and goes with it."""

    def _replay(self, letter: Run, run: Run) -> None:
        super()._replay(letter, run)
        self._replays = Keys()


class RevivesJobs(InProcessBackend):
    """A replay brings its job back."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        letter = self._runs.get(new.replay_of.int) if new.replay_of is not None else None
        if letter is not None and letter.lane.definition is None:
            letter.lane.definition = letter.definition
        return super()._enqueue(new, now)


class ReplaysAnything(Wrapped):
    """Whatever run is named, its job runs again."""

    async def replay(self, run_id: UUID, **scope: Any) -> UUID:
        run: JobRun | None = await self.node.get_run(run_id, **scope)
        if run is not None and run.state is not RunState.DEAD:
            return cast("UUID", await self.node.trigger_once(run.job_id, **scope))
        return cast("UUID", await self.node.replay(run_id, **scope))


class DiscardForgets(InProcessBackend):
    """A discarded letter is gone."""

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        discarded = await super().discard(run_id, scope_id, request_id)
        run = self._runs.pop(run_id.int, None)
        if run is not None and run.lane.history is not None:
            run.lane.history.remove(run)
        return discarded


class DiscardsEverywhere(InProcessBackend):
    """A letter is discarded from any scope."""

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        run = self._runs.get(run_id.int)
        return await super().discard(run_id, scope_id if run is None else run.lane.key.scope_id, request_id)


async def _tell_nobody(admins: ToAdmins, *facts: Fact) -> None:
    return None


_tell = ToAdmins.tell


async def _tell_once(admins: ToAdmins, *facts: Fact) -> None:
    try:
        await _tell(admins, *facts)
    except OSError:
        return


class ForgetsWhoHasANotifier(InProcessBackend):
    """That some node has a notifier is not stored."""

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        return 0 if name == ADMINS_TOLD else await super().setting(name, expected, value)


class NoticesAreFacts(InProcessBackend):
    """Letters are noted only where facts are."""

    def _file_letter(self, run: Run) -> None:
        super()._file_letter(run)
        if not self._records_facts:
            self._outboxes[Audience.ADMINS]._facts.pop()


FAULTS = [
    Fault("a letter keeps neither error nor attempts", "RETRY-5", of(
        "RETRY-5", "a_letter_does_not_lose_its_story",
    ), on(BareLetters)),
    Fault("a replay runs with the job's payload", "RETRY-5", of(
        "RETRY-5", "replay_does_not_use_another_payload",
    ), on(JobsPayload)),
    Fault("a replay goes on counting", "RETRY-5", of(
        "RETRY-5", "replay_does_not_go_on_with_the_old_run",
    ), on(GoesOnCounting)),
    Fault("a replay jumps the queue", "RETRY-5", of(
        "RETRY-5", "replay_does_not_jump_the_queue",
    ), on(JumpsTheQueue)),
    Fault("a replayed letter stays in the list", "RETRY-5", of(
        "RETRY-5", "a_replayed_letter_is_not_listed_any_more",
    ), on(StillListed)),
    Fault("a letter is replayed each time it is asked for", "RETRY-5", of(
        "RETRY-5", "a_second_replay_does_not_start_a_second_run", "replays_at_once_do_not_make_two_runs",
    ), on(ReplaysAgain)),
    Fault("a replay forgets how deep its letter was", "EVENT-6", of(
        "EVENT-6", "a_replay_does_not_begin_the_chain_anew", "a_chain_of_replays_does_not_go_on_for_ever",
    ), on(ReplaysAtTheSurface)),
    Fault("a replay forgets how deep its caller was", "EVENT-6", of(
        "EVENT-6", "a_chain_of_replays_does_not_go_on_for_ever",
    ), on(ReplaysNoDeeper)),
    Fault("retention forgets that a letter was replayed", "RETRY-5", of(
        "RETRY-5", "retention_does_not_forget_that_a_letter_was_replayed",
    ), on(ForgetsReplays)),
    Fault("a replay revives its job", "RETRY-5", of(
        "RETRY-5", "replay_does_not_revive_a_removed_job",
    ), on(RevivesJobs)),
    Fault("any run can be replayed", "RETRY-5", of(
        "RETRY-5", "only_letters_are_replayed",
    ), nodes(ReplaysAnything)),
    Fault("a discarded letter leaves history", "RETRY-5", of(
        "RETRY-5", "discard_does_not_remove_history",
    ), on(DiscardForgets)),
    Fault("a letter is discarded from another scope", "RETRY-5", of(
        "RETRY-5", "discard_does_not_touch_anything_else",
    ), on(DiscardsEverywhere)),
    Fault("nobody is told of letters", "RETRY-5", of(
        "RETRY-5", "admins_do_not_miss_a_letter",
    ), patch=replaced(ToAdmins, "tell", _tell_nobody)),
    Fault("admins who did not hear are not told again", "RETRY-5", of(
        "RETRY-5", "admins_are_not_told_only_once_in_vain",
    ), patch=replaced(ToAdmins, "tell", _tell_once)),
    Fault("letters are noted only where there are events", "RETRY-5", of(
        "RETRY-5", "admins_do_not_depend_on_events",
    ), on(NoticesAreFacts)),
    Fault("letters go to nodes that only log them", "RETRY-5", of(
        "RETRY-5", "a_node_without_a_notifier_does_not_swallow_letters",
    ), on(ForgetsWhoHasANotifier)),
    Fault("notices are not on disk", "RETRY-5", of(
        "RETRY-5", "a_restart_does_not_lose_untold_letters",
    ), reopened(lambda store: store._outboxes[Audience.ADMINS]._facts.clear())),
]  # fmt: skip
