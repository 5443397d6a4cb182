"""`rota next` and `rota explain`. Rules: CRON-1, CRON-3, CRON-11, CRON-12."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from rota.cli import main
from rota.cron import Cron


def rota(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_next_shows_as_many_occurrences_as_asked_for_in_local_time_and_utc() -> None:
    result = rota("next", "0 8 * * MON-FRI", "--tz", "Europe/Berlin", "-n", "3", "--after", "2026-01-02T12:00")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "Mon 2026-01-05 08:00:00+01:00  2026-01-05T07:00:00Z",
        "Tue 2026-01-06 08:00:00+01:00  2026-01-06T07:00:00Z",
        "Wed 2026-01-07 08:00:00+01:00  2026-01-07T07:00:00Z",
    ]


def test_next_points_out_a_change_of_the_offset() -> None:
    result = rota("next", "0 8 * * *", "--tz", "Europe/Berlin", "-n", "3", "--after", "2026-03-27T12:00")
    marked = [line for line in result.output.splitlines() if line.endswith("offset changed")]
    assert marked == ["Sun 2026-03-29 08:00:00+02:00  2026-03-29T06:00:00Z  offset changed"]


def test_next_starts_now_and_shows_five_when_nothing_else_is_said() -> None:
    result = rota("next", "* * * * *")
    assert result.exit_code == 0
    assert len(set(result.output.splitlines())) == 5


def test_a_time_without_offset_is_taken_in_the_zone_and_one_with_an_offset_as_it_is() -> None:
    in_zone = rota("next", "0 * * * *", "--tz", "Asia/Tokyo", "-n", "1", "--after", "2026-01-01T00:30")
    with_offset = rota("next", "0 * * * *", "--tz", "Asia/Tokyo", "-n", "1", "--after", "2026-01-01T00:30+00:00")
    assert "2025-12-31T16:00:00Z" in in_zone.output
    assert "2026-01-01T01:00:00Z" in with_offset.output


def test_an_expression_with_seconds_is_shown_to_the_second() -> None:
    result = rota("next", "*/20 * * * * *", "-n", "1", "--after", "2026-01-01T00:00:01")
    assert "2026-01-01T00:00:20Z" in result.output


@pytest.mark.parametrize("command", ["next", "explain"])
def test_a_wrong_expression_is_shown_with_a_caret_under_the_character(command: str) -> None:
    result = rota(command, "0 25 * * *")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines[-2] == "    0 25 * * *"
    assert lines[-1].rstrip() == "      ^"
    assert "hour" in lines[0]


@pytest.mark.parametrize("command", ["next", "explain"])
def test_an_unknown_zone_is_refused_by_name(command: str) -> None:
    result = rota(command, "0 8 * * *", "--tz", "Europe/Nowhere")
    assert result.exit_code == 2
    assert "Invalid value for --tz" in result.output
    assert "trigger.tz" not in result.output, "which nobody wrote here"
    assert "Europe/Nowhere" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["next", "explain"])
def test_posix_refuses_what_posix_does_not_have(command: str) -> None:
    assert rota(command, "*/5 * * * *").exit_code == 0
    assert rota(command, "*/5 * * * *", "--posix").exit_code == 2
    assert rota(command, "0 8 * * 1-5", "--posix").exit_code == 0


@pytest.mark.parametrize("count", ["0", "1001", "many"])
def test_a_count_outside_the_limits_is_refused(count: str) -> None:
    assert rota("next", "* * * * *", "-n", count).exit_code == 2


@pytest.mark.parametrize("start", ["tomorrow", "2026-02-30", "0001-01-01"])
def test_a_start_that_is_no_time_is_refused_with_an_example(start: str) -> None:
    result = rota("next", "* * * * *", "--tz", "Asia/Tokyo", "--after", start)
    assert result.exit_code == 2
    assert f"'{start}' is not an ISO time like 2026-03-28T12:00" in result.output


def test_the_end_of_the_calendar_is_an_error_not_a_traceback() -> None:
    result = rota("next", "0 0 1 1 *", "--after", "9998-06-01", "-n", "5")
    assert result.exit_code == 2
    assert "no occurrence after" in result.output


@pytest.mark.parametrize(
    ("zone", "after"),
    [
        ("America/New_York", "0001-01-01T00:00+00:00"),
        ("Asia/Tokyo", "9999-12-31T22:00+00:00"),
        ("Asia/Tokyo", "9999-12-31T23:58"),
        ("America/New_York", "9999-12-31T23:58"),
        ("Asia/Tokyo", "0001-01-01T00:00"),
    ],
)
def test_the_ends_of_the_calendar_are_told_in_one_sentence(zone: str, after: str) -> None:
    result = rota("next", "* * * * *", "--tz", zone, "--after", after)
    assert result.exit_code in (0, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0 or "Error: " in result.output


def test_explain_says_the_schedule_in_words() -> None:
    result = rota("explain", "0 8 * * MON-FRI", "--tz", "Europe/Berlin")
    assert result.exit_code == 0
    assert "08:00" in result.output
    assert "Europe/Berlin" in result.output


@pytest.mark.parametrize(("expression", "said"), [("30 2 * * *", "fires once"), ("*/30 * * * *", "both passes")])
def test_explain_says_what_happens_when_the_clocks_change(expression: str, said: str) -> None:
    assert said in rota("explain", expression, "--tz", "Europe/Berlin").output
    assert "clocks change" not in rota("explain", expression).output


@pytest.mark.parametrize("command", ["next", "explain"])
@pytest.mark.parametrize("words", [["0", "8", "*", "*", "*"], ["0", "8", "hello.py", "rota.db"], []])
def test_an_expression_that_is_not_quoted_is_told_how_to(command: str, words: list[str]) -> None:
    """A shell makes several words of it, and of each * the files of the folder."""
    result = rota(command, *words)
    assert result.exit_code == 2
    assert f'quote it: rota {command} "0 8 * * MON-FRI"' in result.output
    assert "Usage: rota" in result.output
    assert " EXPR\n" in result.output.splitlines()[0] + "\n"


def test_h_is_resolved_for_a_named_job_and_refused_without_one() -> None:
    minute = Cron("H 3 * * *").resolved("default", "reports").expression.split()[0]
    result = rota("next", "H 3 * * *", "--job", "reports", "-n", "1", "--after", "2026-01-01")
    assert f"2026-01-01 03:{int(minute):02}:00" in result.output
    other = rota("next", "H 3 * * *", "--job", "reports", "--scope", "tenant-7", "-n", "1", "--after", "2026-01-01")
    assert other.exit_code == 0
    assert other.output != result.output
    refused = rota("next", "H 3 * * *")
    assert refused.exit_code == 2
    assert "name the job with --job ID" in refused.output


def test_explain_shows_the_resolved_expression_and_days_that_depend_on_the_month() -> None:
    minute = Cron("H 3 * * *").resolved("default", "reports").expression.split()[0]
    assert rota("explain", "H 3 * * *", "--job", "reports").output.splitlines() == [
        f"{minute} 3 * * * for job reports",
        f"At 03:{int(minute):02} every day (UTC).",
    ]
    assert "H is a value of its own for each job" in rota("explain", "H 3 * * *").output
    assert rota("explain", "0 9 LW * *").output.strip() == "At 09:00 on the last working day of every month (UTC)."
