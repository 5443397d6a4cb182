"""An error in the application's own code is told as far as it concerns that code: module, file, line, exception.

No rule: it is about error messages of the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli import main

REGISTRY = "from rota import HandlerRegistry\nhandlers = HandlerRegistry()\n"
CRON_SLIP = (
    "from rota import Cron, JobDefinition\n"
    "def jobs():\n"
    "    return [JobDefinition('a', 'a', Cron('0 25 * * *'))]\n"
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("ROTA_BACKEND", raising=False)
    monkeypatch.delenv("ROTA_TRACEBACK", raising=False)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def rota(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", ["run", "doctor"])
@pytest.mark.parametrize(
    ("source", "line", "told"),
    [
        ("x = 1\nx / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("import sys\n\nimport not_there\n", 3, "ModuleNotFoundError: No module named 'not_there'"),
        ("from rota import Shceduler\n", 1, "ImportError: cannot import name 'Shceduler'"),
        ("import json\njson.laods('')\n", 2, "module 'json' has no attribute 'laods'"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: "),
        ("x = (1,\ny = 2\n", 1, "SyntaxError: '(' was never closed"),
        ("def f():\nreturn 1\n", 2, "IndentationError: "),
        ("from rota import Cron\nMORNING = Cron('0 8 * *')\n", 2, "InvalidCron: "),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
    ],
)
def test_an_error_at_import_names_module_line_and_exception(
    folder: Path, command: str, source: str, line: int, told: str
) -> None:
    (folder / "shop_jobs.py").write_text(source)
    result = rota(command, "shop_jobs:handlers")
    assert result.exit_code == 2
    assert "module 'shop_jobs' cannot be imported" in result.output
    assert f'shop_jobs.py", line {line}' in result.output
    assert told in result.output
    assert result.output.count("File ") == 1, "neither ours, nor the library's, nor the import system's"


def test_the_way_through_the_applications_own_files_is_shown(folder: Path) -> None:
    package = folder / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text("import shop.db\n")
    (package / "db.py").write_text("def connect():\n    raise OSError('no database')\n\nconnect()\n")
    output = rota("run", "shop.jobs:handlers").output
    lines = [line.split("shop/")[1].split(",")[:2] for line in output.splitlines() if "File " in line]
    assert lines == [['jobs.py"', " line 1"], ['db.py"', " line 4"], ['db.py"', " line 2"]]
    assert "OSError: no database" in output


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("def made():\n    return 1 / 0\n", ["shop_jobs:made"], "'made' of module 'shop_jobs' failed"),
        (REGISTRY + CRON_SLIP, ["shop_jobs:handlers", "--jobs", "jobs"], "'jobs' of module 'shop_jobs' failed"),
        (
            REGISTRY + "def jobs():\n    yield 1 / 0\n",
            ["shop_jobs:handlers", "--jobs", "jobs"],
            "'jobs' of module 'shop_jobs' failed",
        ),
    ],
)
def test_a_function_of_the_application_that_fails_is_told_alike(
    folder: Path, source: str, arguments: list[str], said: str
) -> None:
    (folder / "shop_jobs.py").write_text(source)
    result = rota("run", *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("File ") == 1
    assert "line " in result.output


@pytest.mark.parametrize(("options", "variable"), [(["--traceback"], None), ([], "1")])
def test_the_whole_traceback_is_shown_when_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], variable: str | None
) -> None:
    if variable:
        monkeypatch.setenv("ROTA_TRACEBACK", variable)
    (folder / "shop_jobs.py").write_text("import json\njson.loads('{')\n")
    output = rota(*options, "run", "shop_jobs:handlers").output
    assert "Traceback (most recent call last)" in output
    assert "json/decoder.py" in output
    assert "--traceback" not in output, "who asked need not be told how to ask"


def test_the_way_to_the_whole_traceback_is_said(folder: Path) -> None:
    (folder / "shop_jobs.py").write_text("1 / 0\n")
    assert "rota --traceback run" in rota("run", "shop_jobs:handlers").output


def test_errors_of_rota_itself_show_theirs_too(folder: Path) -> None:
    assert "Traceback" not in rota("doctor", "--backend", "nonsense:x").output
    output = rota("--traceback", "doctor", "--backend", "nonsense:x").output
    assert "discovery.py" in output
    assert output.splitlines()[-1].startswith("Error: backend: there is no backend")


@pytest.mark.parametrize(
    ("name", "said"), [("handler", "did you mean 'handlers'?"), ("unlike", "there is a HandlerRegistry: 'handlers'")]
)
def test_a_wrong_attribute_names_the_file_and_what_is_there(folder: Path, name: str, said: str) -> None:
    (folder / "shop_jobs.py").write_text(REGISTRY)
    result = rota("run", f"shop_jobs:{name}")
    assert result.exit_code == 2
    assert f"has no '{name}'" in result.output
    assert "shop_jobs.py" in result.output
    assert said in result.output


def test_an_import_of_an_application_leaves_the_path_as_short_as_it_was(folder: Path) -> None:
    (folder / "shop_jobs.py").write_text(REGISTRY + "JOBS = []\n")
    rota("doctor", "shop_jobs:handlers")
    rota("doctor", "shop_jobs:handlers")
    assert sys.path.count(str(folder)) == 1
