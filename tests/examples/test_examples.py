"""Every example runs. No rule: the examples are documentation that is executed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.etcd import etcd_url, why_no_etcd
from tests.servers import postgres_url

ROOT = Path(__file__).parent.parent.parent
ON_POSTGRES = {"one_setting.py", "transactional_trigger.py"}
ON_ETCD = {"custom_backend.py", "custom_backend_contract.py"}
NEEDING_A_SERVER = {"transactional_trigger.py", "custom_backend.py"}
ALONE = sorted({path.name for path in (ROOT / "examples").glob("*.py")} - ON_ETCD - NEEDING_A_SERVER)


def run(name: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_alone_and_keeps_its_own_assertions(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it shows what it did"


@pytest.mark.parametrize("name", sorted(ON_POSTGRES))
def test_an_example_runs_on_postgresql_and_cleans_up(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        done = run(name, tmp_path, postgres_url())
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip(), "it shows what it did"


@pytest.mark.skipif(why_no_etcd() is not None, reason=why_no_etcd() or "")
@pytest.mark.parametrize("name", sorted(ON_ETCD))
def test_an_example_runs_on_etcd(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_ETCD", etcd_url())
    done = run(name, tmp_path, etcd_url())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it shows what it did"


@pytest.mark.parametrize(
    ("name", "given", "advice"),
    [
        ("transactional_trigger.py", [], "transactional_trigger.py postgresql://user@host/database"),
        ("transactional_trigger.py", ["postgresql://127.0.0.1:9/x"], "Give the URL of a PostgreSQL database"),
        ("one_setting.py", ["postgresql://127.0.0.1:9/x"], "no connection"),
        ("custom_backend.py", ["http://127.0.0.1:9"], "apt install etcd-server"),  # nobody listens there
        ("custom_backend_contract.py", [], "apt install etcd-server"),
    ],
)
def test_an_example_without_its_server_says_what_to_do(
    name: str, given: list[str], advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_ETCD", "http://127.0.0.1:9")
    done = run(name, tmp_path, *given)
    assert done.returncode == 1
    assert advice in done.stderr
    assert "Traceback" not in done.stderr


def test_every_example_is_on_the_list() -> None:
    listed = (ROOT / "docs" / "index.md").read_text()
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(
        re.findall(r"\(\.\./examples/(\w+)\.py\)", listed)
    )


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
     "starlette_lifespan", "one_setting", "two_nodes_and_a_kill", "transactional_trigger", "custom_backend",
     "custom_backend_contract", "testing_with_virtual_time"],
)  # fmt: skip
def test_the_promised_examples_exist(wanted: str) -> None:
    assert (ROOT / "examples" / f"{wanted}.py").is_file()
