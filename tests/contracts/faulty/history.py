"""Faults in listings and in retention (HIST-1, HIST-2)."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any

from attrs import evolve

from rota.backend import Census, FireResult, Firing, JobKey, JobQuery, JobRecord, Prune, RunQuery, Settlement, StoredJob
from rota.model.definition import JobDefinition
from rota.model.run import Cause, JobRun
from rota.model.validation import check_limit
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, everywhere, on

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_ALL = 10**9


def _is_history(query: RunQuery) -> bool:
    return query.run_id is None and not query.dead_letters


class _Listing(InProcessBackend):
    """A store whose history is seen through `_listed`; `known` are all runs, newest first."""

    def _listed(self, known: list[JobRun], limit: int) -> list[JobRun]:
        raise NotImplementedError

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if not _is_history(query):
            return await super().runs(query)
        return self._listed(await super().runs(evolve(query, limit=_ALL)), query.limit)


class ByStart(_Listing):
    """Newest is what started last; ties as they come."""

    def _listed(self, known: list[JobRun], limit: int) -> list[JobRun]:
        as_they_come = known[::-1]
        return sorted(as_they_come, key=lambda run: run.started_at or _LONG_AGO, reverse=True)[:limit]


class Boundless(_Listing):
    """The limit is not looked at."""

    def _listed(self, known: list[JobRun], limit: int) -> list[JobRun]:
        return known


class FinishedOnly(_Listing):
    """History is what is over."""

    def _listed(self, known: list[JobRun], limit: int) -> list[JobRun]:
        return [run for run in known if run.state.is_final][:limit]


class RecordsSkips(InProcessBackend):
    """A skipped tick is a cancelled run."""

    def _fire_run(self, lane: Lane, firing: Firing, definition: JobDefinition, now: datetime) -> FireResult:
        result = super()._fire_run(lane, firing, definition, now)
        if result is FireResult.SKIPPED and firing.run_id is not None:
            run = Run(firing.run_id, lane, next(self._order), definition, definition.payload, Cause.CRON, now)
            run.due = firing.due
            self._end_unstarted(run, now, "skipped")
        return result


class OneHistory(InProcessBackend):
    """History is kept by job id."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if not _is_history(query):
            return await super().runs(query)
        scopes = [key[0] for key in self._lanes if key[1] == query.job_id]
        histories = [await InProcessBackend.runs(self, evolve(query, scope_id=scope)) for scope in scopes]
        return [run for history in histories for run in history][: query.limit]


class _Jobs(InProcessBackend):
    """A store that pages through jobs in a way of its own; `known` are all of the scope, in order."""

    def _page(self, known: list[StoredJob], query: JobQuery) -> list[StoredJob]:
        raise NotImplementedError

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        known = await super().jobs(evolve(query, after=None, limit=_ALL))
        return self._page(known, query)[: query.limit]


class Alphabetical(_Jobs):
    """As in a dictionary: upper case and accents do not count."""

    def _page(self, known: list[StoredJob], query: JobQuery) -> list[StoredJob]:
        after = query.after
        ordered = sorted(known, key=lambda job: job.definition.job_id.casefold())
        return [job for job in ordered if after is None or job.definition.job_id.casefold() > after.casefold()]


class ByCodeUnits(_Jobs):
    """As UTF-16 sorts."""

    def _page(self, known: list[StoredJob], query: JobQuery) -> list[StoredJob]:
        ordered = sorted(known, key=lambda job: job.definition.job_id.encode("utf-16-be"))
        return ordered if query.after is None else ordered[_position(ordered, query.after) :]


class AfterIsIncluded(_Jobs):
    """A page begins with the last one of the page before."""

    def _page(self, known: list[StoredJob], query: JobQuery) -> list[StoredJob]:
        return [job for job in known if query.after is None or job.definition.job_id >= query.after]


class AfterMustExist(_Jobs):
    """A page after a job that is gone is the first page."""

    def _page(self, known: list[StoredJob], query: JobQuery) -> list[StoredJob]:
        return known if query.after is None else known[_position(known, query.after) :]


def _position(jobs: list[StoredJob], after: str) -> int:
    return next((n + 1 for n, job in enumerate(jobs) if job.definition.job_id == after), 0)


class PagesByTime(InProcessBackend):
    """Letters after a letter are those that died later."""

    def _letter_page(self, query: RunQuery) -> list[JobRun]:
        letters = super()._letter_page(evolve(query, after=None, limit=_ALL))
        last = self._runs[query.after.int].ended_at if query.after is not None else None
        return [letter for letter in letters if last is None or (letter.ended_at or last) > last][: query.limit]


class OneLetterBox(InProcessBackend):
    """Dead letters have no scope."""

    def _letter_page(self, query: RunQuery) -> list[JobRun]:
        scopes = dict.fromkeys(key[0] for key in self._lanes)
        pages = [InProcessBackend._letter_page(self, evolve(query, scope_id=scope)) for scope in scopes]
        return [letter for page in pages for letter in page]


class KeepsEverything(InProcessBackend):
    """Nothing is ever forgotten."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        return super()._settle(new, now, None)

    async def prune(self, request: Prune) -> int:
        return 0


class OneAllowance(InProcessBackend):
    """The number of runs is for all jobs together."""

    async def prune(self, request: Prune) -> int:
        pruned = await super().prune(request)
        finished = sorted((run for lane in self._lanes.values() for run in lane.history or ()), key=lambda run: run.seq)
        for run in finished[: -request.runs]:
            if run.lane.history is not None:
                run.lane.history.remove(run)
        return pruned


class PrunesTheQueue(InProcessBackend):
    """Beyond the number of runs, whatever they wait for."""

    async def prune(self, request: Prune) -> int:
        for lane in self._lanes.values():
            if lane.waiting:
                lane.waiting = deque(list(lane.waiting)[-request.runs :])
        return await super().prune(request)


class PrunesLetters(InProcessBackend):
    """A dead letter is a finished run."""

    async def prune(self, request: Prune) -> int:
        return await super().prune(evolve(request, dead_letters=request.age))


class KeepsLetters(InProcessBackend):
    """Dead letters stay, whatever one says."""

    async def prune(self, request: Prune) -> int:
        return await super().prune(evolve(request, dead_letters=None))


class IgnoresLetters(InProcessBackend):
    """Dead letters are not counted."""

    async def census(self, scope_id: str | None = None) -> Census:
        return evolve(await super().census(scope_id), dead_letters=0)


class TimesFromHistory(InProcessBackend):
    """The last times are those of the runs that are left."""

    async def standing(self, key: JobKey) -> JobRecord:
        standing = await super().standing(key)
        if standing.job is None:
            return standing
        runs = await self.runs(RunQuery(key.scope_id, key.job_id, limit=_ALL))
        last = max((run.ended_at for run in runs if run.ended_at is not None), default=None)
        job = evolve(standing.job, last_attempt_at=last, last_success_at=last, last_failure_at=last)
        return evolve(standing, job=job)


class FreesKeys(InProcessBackend):
    """A key is freed with the run that took it."""

    def _forget(self, run: Run) -> None:
        super()._forget(run)
        held = self._trigger_keys._held
        for key in [key for key, (holder, _) in held.items() if holder == run.run_id]:
            del held[key]


def _unchecked(value: Any, field: str = "limit") -> int:
    return int(value)


FAULTS = [
    Fault(
        "history goes by starts",
        "HIST-1",
        of("HIST-1", "history_does_not_mix_up_runs_of_one_instant", "history_is_not_ordered_by_starts"),
        on(ByStart),
    ),
    Fault("history has no bound", "HIST-1", of("HIST-1", "history_does_not_give_more_than_asked_for"), on(Boundless)),
    Fault(
        "any page is a page",
        "HIST-1",
        of("HIST-1", "a_page_is_not_empty_or_endless"),
        patch=everywhere(check_limit, _unchecked),
    ),
    Fault(
        "history is what is over",
        "HIST-1",
        of("HIST-1", "history_does_not_leave_out_unfinished_runs"),
        on(FinishedOnly),
    ),
    Fault("skipped ticks are runs", "HIST-1", of("HIST-1", "a_skipped_tick_is_not_a_run"), on(RecordsSkips)),
    Fault(
        "history is kept by job id", "HIST-1", of("HIST-1", "history_does_not_show_another_jobs_runs"), on(OneHistory)
    ),
    Fault(
        "jobs are listed as in a dictionary",
        "HIST-1",
        of("HIST-1", "jobs_are_not_listed_in_another_order", "pages_of_jobs_do_not_lose_or_repeat_any"),
        on(Alphabetical),
    ),
    Fault(
        "jobs are listed by code units", "HIST-1", of("HIST-1", "jobs_are_not_listed_in_another_order"), on(ByCodeUnits)
    ),
    Fault(
        "after is included",
        "HIST-1",
        of("HIST-1", "pages_of_jobs_do_not_lose_or_repeat_any"),
        on(AfterIsIncluded),
    ),
    Fault(
        "after a removed job comes the first page",
        "HIST-1",
        of("HIST-1", "a_page_after_a_removed_job_does_not_start_over"),
        on(AfterMustExist),
    ),
    Fault(
        "letters are paged by time",
        "HIST-1",
        of("HIST-1", "pages_of_dead_letters_do_not_lose_or_repeat_any"),
        on(PagesByTime),
    ),
    Fault(
        "letters have no scope",
        "HIST-1",
        of("HIST-1", "dead_letters_of_another_scope_are_not_listed"),
        on(OneLetterBox),
    ),
    Fault(
        "nothing is forgotten",
        "HIST-2",
        of("HIST-2", "history_does_not_grow_without_bound", "old_runs_are_not_kept"),
        on(KeepsEverything),
    ),
    Fault(
        "jobs share one allowance",
        "HIST-2",
        of("HIST-2", "retention_does_not_take_more_than_it_should"),
        on(OneAllowance),
    ),
    Fault(
        "retention prunes the queue",
        "HIST-2",
        of("HIST-2", "retention_does_not_touch_unfinished_runs"),
        on(PrunesTheQueue),
    ),
    Fault(
        "retention prunes letters", "HIST-2", of("HIST-2", "retention_does_not_touch_dead_letters"), on(PrunesLetters)
    ),
    Fault("letters never go", "HIST-2", of("HIST-2", "dead_letters_go_when_they_are_told_to"), on(KeepsLetters)),
    Fault("letters are not counted", "HIST-2", of("HIST-2", "dead_letters_do_not_go_unnoticed"), on(IgnoresLetters)),
    Fault(
        "last times are read from history",
        "HIST-2",
        of("HIST-2", "retention_does_not_forget_the_last_times"),
        on(TimesFromHistory),
    ),
    Fault("a key goes with its run", "HIST-2", of("HIST-2", "retention_does_not_free_keys"), on(FreesKeys)),
]
