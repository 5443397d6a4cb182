from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import postgres_url

ROOT = Path(__file__).parent.parent.parent
ALONE = sorted({path.name for path in (ROOT / "examples").glob("*.py")} - {"transactional_trigger.py"})
ON_POSTGRES = ["one_setting.py", "transactional_trigger.py"]


def run(name: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_alone_and_keeps_its_own_assertions(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it shows what it did"


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_an_example_runs_on_postgresql_and_cleans_up(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        done = run(name, tmp_path, postgres_url())
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip(), "it shows what it did"


def test_an_example_without_the_server_it_needs_says_how_to_give_one(tmp_path: Path) -> None:
    done = run("transactional_trigger.py", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].strip() == (
        "python examples/transactional_trigger.py postgresql://user@host/database"
    )
    assert "Traceback" not in done.stderr


def test_the_hello_of_the_readme_is_the_example() -> None:
    example = (ROOT / "examples" / "hello.py").read_text()
    shown = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    body = example.split("from __future__ import annotations\n\n")[1]
    told = [line for line in body.splitlines() if "RunState" not in line]
    assert [line for line in shown.splitlines() if "import" not in line] == [
        line for line in told if "import" not in line
    ]


@pytest.mark.parametrize(
    "wanted",
    ["hello", "composition_root", "daily_summary_mail", "reindex_on_event", "stale_cleanup", "ingestion_on_demand",
     "starlette_lifespan", "one_setting", "two_nodes_and_a_kill", "transactional_trigger", "etcd_backend",
     "testing_with_virtual_time"],
)  # fmt: skip
def test_the_promised_examples_exist(wanted: str) -> None:
    assert (ROOT / "examples" / f"{wanted}.py").is_file()
