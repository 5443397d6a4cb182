"""`rota demo` shows what it says it shows. Rules: CRON-8, PAUSE-1, RETRY-3, RETRY-5, EVENT-1."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli import main
from tests.patience import PATIENCE

ROTA = Path(sys.executable).with_name("rota")


@pytest.fixture(scope="module")
def played() -> list[str]:
    result = CliRunner().invoke(main, ["demo", "--seconds", "0"])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def events_of(played: list[str], job_id: str) -> list[str]:
    told = re.compile(rf"\d\d:\d\d:\d\d  Job(\w+) {re.escape(job_id)}")
    return [found[1] for line in played if (found := told.fullmatch(line))]


def test_the_failing_job_retries_becomes_a_dead_letter_and_is_replayed(played: list[str]) -> None:
    failures = ["Triggered", "Failed"] * 3
    assert events_of(played, "charge-cards") == ["Registered", *failures, "DeadLettered", "Triggered", "Succeeded"]
    assert any("admins notified: charge-cards is a dead letter after 3 attempts" in line for line in played)


def test_the_overlapping_job_has_its_skips_on_record(played: list[str]) -> None:
    assert any("decided: inventory-sync 11:54-11:56 (2) skipped" in line for line in played)


def test_the_paused_job_does_not_start_between_pause_and_resume(played: list[str]) -> None:
    paused, resumed = (
        next(n for n, line in enumerate(played) if f"newsletter is {word}" in line) for word in ("paused", "resumed")
    )
    assert "Triggered" not in events_of(played[paused:resumed], "newsletter")
    assert "Triggered" in events_of(played[resumed:], "newsletter")
    assert any("decided: newsletter 11:57-12:03 (3) paused: template under review" in line for line in played)


def test_jobs_that_collide_at_the_full_hour_wait_for_a_slot_the_urgent_one_first(played: list[str]) -> None:
    starts = [line for line in played if "JobTriggered hourly-" in line]
    assert starts[0] == "12:00:00  JobTriggered hourly-report"
    assert len(starts) == 4
    assert starts[-1].startswith("12:03:00")


def test_jobs_run_on_events_of_the_application_and_of_other_jobs(played: list[str]) -> None:
    assert events_of(played, "search-index") == ["Registered", *["Triggered", "Succeeded"] * 3]
    assert events_of(played, "page-on-call") == ["Registered", "Triggered", "Succeeded"]


def test_a_new_node_goes_on_where_the_old_one_left(played: list[str]) -> None:
    left, back = (next(n for n, line in enumerate(played) if each in line) for each in ("a deploy", "a new node"))
    assert events_of(played[left:back], "heartbeat") == []
    assert events_of(played[left:], "inventory-sync")[0] == "Triggered", "the run handed back is taken up again"
    assert any("decided: heartbeat 12:12-12:13 (2) coalesced" in line for line in played)


def test_it_plays_on_sqlite_and_leaves_nothing_behind(played: list[str], tmp_path: Path) -> None:
    assert played[0].endswith("a node starts on sqlite: jobs, runs and decisions outlive every process")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([ROTA, "demo", "--seconds", "0"], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["inprocess", "memory:"])
def test_another_backend_plays_the_same_story(given: str, played: list[str]) -> None:
    result = CliRunner().invoke(main, ["demo", "--seconds", "0", "--backend", given])
    assert sorted(result.output.splitlines()[1:]) == sorted(played[1:])


def test_a_store_with_jobs_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    assert CliRunner().invoke(main, ["demo", "--seconds", "0", "--backend", url]).exit_code == 0
    before = (tmp_path / "jobs.db").read_bytes()
    again = CliRunner().invoke(main, ["demo", "--seconds", "0", "--backend", url])
    assert again.exit_code == 2
    assert "this store already contains jobs" in again.output
    assert (tmp_path / "jobs.db").read_bytes() == before


def test_a_terminal_gets_the_live_picture() -> None:
    code, output = in_a_terminal([str(ROTA), "demo", "--seconds", "0"])
    assert code == 0
    assert "lifecycle events" in output
    assert "recent runs" in output
    assert "template under review" in output


def test_without_rich_a_terminal_gets_lines_and_the_way_to_the_picture() -> None:
    hidden = "import sys; sys.modules['rich'] = None; from rota.cli import main; main(['demo', '--seconds', '0'])"
    code, output = in_a_terminal([sys.executable, "-c", hidden])
    assert code == 0
    assert 'pip install "rota[cli]"' in output
    assert "JobDeadLettered charge-cards" in output


def in_a_terminal(command: list[str]) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # Linux says so when the other side has closed it
        pass
    os.close(ours)
    return process.wait(PATIENCE), output.decode()


def _listen_to_ctrl_c() -> None:
    """A shell's background job, as the tests may be, ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_it_cleanly() -> None:
    command = [str(ROTA), "demo", "--plain", "--seconds", "600"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_listen_to_ctrl_c
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is under way
        process.send_signal(signal.SIGINT)
        try:
            output, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert output.decode().splitlines()[-1] == "stopped"
    assert errors == b""
