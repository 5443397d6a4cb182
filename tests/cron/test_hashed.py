"""CRON-12: H is a value derived from scope and job id, the same on every node and for ever."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from rota.cron import Cron
from rota.errors import ScheduleError

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_derivation_is_the_one_written_down() -> None:
    digest = sha256(b"minute\x00default\x00reports").digest()
    assert Cron("H * * * *").resolved("default", "reports").expression == (
        f"{int.from_bytes(digest[:8], 'big') % 60} * * * *"
    )


def test_the_values_never_change() -> None:
    """Written down once: another value here would move every schedule of every user."""
    cron = Cron("H H(0-5) H H H")
    assert cron.resolved("default", "reports").expression == "2 2 15 11 3"
    assert Cron("H/15 * * * *").resolved("tenant-7", "sync 🐙").expression == "11-59/15 * * * *"


def test_fields_jobs_and_scopes_differ() -> None:
    cron = Cron("H H * * *")
    minutes = Counter(cron.resolved("s", str(n)).expression.split()[0] for n in range(600))
    assert len(minutes) == 60
    assert max(minutes.values()) < 30
    assert cron.resolved("a", "bc") != cron.resolved("ab", "c")
    assert any(len(set(cron.resolved("s", str(n)).expression.split()[:2])) == 2 for n in range(9))


@pytest.mark.parametrize("job", [str(n) for n in range(50)])
def test_each_form_stays_in_its_range(job: str) -> None:
    minute, hour, day, month, weekday = Cron("H(10-19) H H H H").resolved("s", job).expression.split()
    assert 10 <= int(minute) <= 19
    assert 0 <= int(hour) <= 23
    assert 1 <= int(day) <= 28
    assert 1 <= int(month) <= 12
    assert 0 <= int(weekday) <= 6


@pytest.mark.parametrize("job", [str(n) for n in range(20)])
def test_steps_keep_their_period_across_the_hour(job: str) -> None:
    cron = Cron("H/15 * * * *").resolved("s", job)
    first = cron.next_after(START)
    assert [cron.next_after(first + timedelta(minutes=15 * n, seconds=-1)) for n in range(9)] == [
        first + timedelta(minutes=15 * n) for n in range(9)
    ]


def test_an_unresolved_one_says_so_and_names_itself() -> None:
    cron = Cron("H * * * *")
    assert not cron.is_resolved
    for ask in (cron.next_after, cron.previous_before, cron.matches, lambda at: cron.count(at, at + timedelta(days=1))):
        with pytest.raises(ScheduleError, match=r"'H \* \* \* \*' has an H.*resolved\(scope_id, job_id\)"):
            ask(START)


def test_a_step_counts_as_a_star_and_a_value_does_not() -> None:
    assert not Cron("H/15 3 * * *").is_fixed
    assert not Cron("H/15 3 * * *").resolved("s", "j").is_fixed
    assert Cron("H 3 * * *").is_fixed
    every = Cron("0 0 H/2 * MON").resolved("s", "j")  # both must match (CRON-2)
    assert all(every.next_after(START + timedelta(days=n)).isoweekday() == 1 for n in range(60))


def test_zone_and_policies_stay_and_it_survives_pickling() -> None:
    cron = Cron("H/20 3 * * *", "Europe/Berlin", grace=timedelta(hours=1))
    resolved = cron.resolved("s", "j")
    assert (resolved.tz, resolved.grace) == ("Europe/Berlin", timedelta(hours=1))
    again = pickle.loads(pickle.dumps(resolved))
    assert (again, again.is_fixed, again.describe()) == (resolved, False, resolved.describe())
    assert resolved.resolved("other", "job") is resolved


def test_an_h_in_a_list_or_beside_special_days() -> None:
    minute = Cron("H,30 * * * *").resolved("s", "j").expression.split()[0]
    assert minute.endswith(",30")
    assert Cron("0 H L * FRI#1").resolved("s", "j").expression.endswith("L * FRI#1")
