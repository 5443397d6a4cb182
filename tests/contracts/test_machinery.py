"""How clauses are chosen, run and judged, in a pytest of its own. No rule: it is about the machinery of the pack."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.contracts.playground import CONFTEST, HARNESS, SUBJECT
from tests.patience import PATIENCE

pytest_plugins = ["pytester"]


class Bench:
    """A project with a toy pack and one contract class."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(toys=HARNESS)

    def run(self, *args: str, harness: str = "TroubleHarness()", body: str = "") -> pytest.RunResult:
        self._pytester.makepyfile(test_toy=SUBJECT.format(harness=harness, body=body))
        options = ("-p", "no:cacheprovider", "-p", "no:asyncio", *args)
        if "-n" in args:
            return self._pytester.runpytest_subprocess(*options, timeout=PATIENCE)
        return self._pytester.runpytest_inprocess(*options)

    @property
    def path(self) -> Path:
        return self._pytester.path


@pytest.fixture
def bench(pytester: pytest.Pytester) -> Bench:
    return Bench(pytester)


def _verdict(result: pytest.RunResult) -> str | None:
    found = re.search(r"^toy \(test_toy.py::TestToy\): (.+)$", result.stdout.str(), re.MULTILINE)
    return found[1] if found else None


# --- the verdict ---


def test_a_scheduler_that_keeps_every_clause_is_conformant(bench: Bench) -> None:
    result = bench.run()
    assert _verdict(result) == "CONFORMANT"
    result.stdout.fnmatch_lines(["*Rota contract, version 2*", "*5 passed, 3 not applicable*"])
    assert result.ret == 0


def test_a_broken_clause_makes_it_not_conformant(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(breaks='core')")
    assert _verdict(result) == "NOT CONFORMANT"
    result.stdout.fnmatch_lines(["*failed: TOY-1/test_a_node_opens"])
    assert result.ret == 1


def test_a_fixture_that_fails_makes_it_not_conformant(bench: Bench) -> None:
    result = bench.run(harness="1 / 0")
    assert _verdict(result) == "NOT CONFORMANT"
    assert result.ret == 1


def test_what_the_harness_lacks_makes_it_incomplete(bench: Bench) -> None:
    result = bench.run(harness="ToyHarness(Capability.DURABLE)")
    assert _verdict(result) == "INCOMPLETE"
    result.stdout.fnmatch_lines(
        [
            "*not run: the harness brings no reopen: 1 of TOY-3",
            "*not run: the harness brings no outage: 1 of TOY-5",
        ]
    )
    assert result.ret == 0


def test_a_durable_store_that_was_tried_in_one_process_says_so(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(Capability.DURABLE)")
    assert _verdict(result) == "CONFORMANT, one process only"
    result.stdout.fnmatch_lines(["*not tried: the harness opens no nodes in other processes*: 1 of TOY-6"])


def test_a_durable_store_that_is_opened_elsewhere_is_conformant(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(Capability.DURABLE, elsewhere=print)")
    assert _verdict(result) == "CONFORMANT"


def test_deviations_in_one_process_say_both(bench: Bench) -> None:
    known = 'known_failures = {"TOY-2": "issue 1"}'
    result = bench.run(harness="TroubleHarness(Capability.DURABLE, breaks='nodes')", body=known)
    assert _verdict(result) == "CONFORMANT WITH 2 DEVIATIONS, one process only"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("None", "gives None, which has no capabilities, *"),
        ("TroubleHarness", "gives the class TroubleHarness; expected is a Harness, *"),
        ("late()", "gives a coroutine; expected is a Harness, *"),
        ("Node('')", "gives an object of the class Node, which has no capabilities, *"),
    ],
)
def test_what_is_no_harness_fails_once_and_says_what_is_expected(bench: Bench, given: str, told: str) -> None:
    result = bench.run(harness=given)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"the fixture `harness` of TestToy {told}"])
    result.stdout.fnmatch_lines(["*not run: the fixture `harness` gives no harness: 7 of *"])
    assert _verdict(result) == "NOT CONFORMANT"


def test_a_skipped_clause_counts_as_not_run(bench: Bench) -> None:
    result = bench.run(body="pytestmark = pytest.mark.skip(reason='later')")
    assert _verdict(result) == "INCOMPLETE"


def test_a_failure_outweighs_what_did_not_run(bench: Bench) -> None:
    assert _verdict(bench.run(harness="ToyHarness(breaks='nodes')")) == "NOT CONFORMANT"


@pytest.mark.parametrize(
    "partial",
    [
        ("-k", "agree"),
        ("-k", "TOY-5"),
        ("-k", "TOY-2/test_two_nodes_talk"),
        ("test_toy.py::TestToy::test_a_node_opens",),
    ],
)
def test_a_partial_run_has_no_verdict(bench: Bench, partial: tuple[str, ...]) -> None:
    result = bench.run(*partial)
    assert _verdict(result) is None
    result.assert_outcomes(passed=1, deselected=7 if "-k" in partial else 0)


def test_a_run_stopped_at_the_first_failure_has_no_verdict(bench: Bench) -> None:
    result = bench.run("-x", harness="TroubleHarness(breaks='core')")
    assert _verdict(result) is None
    assert result.ret == 1


def test_each_harness_of_a_parametrised_class_has_its_own_verdict(bench: Bench) -> None:
    body = """
    @pytest.fixture(params=["core", "fine"])
    def breaks(self, request):
        return request.param

    @pytest.fixture
    def harness(self, breaks):
        return TroubleHarness(breaks=breaks)

class TestOther(SchedulerContract):
    backend = "other"
    """
    result = bench.run(body=body)
    result.stdout.fnmatch_lines(
        [
            "toy (test_toy.py::TestToy[[]core[]]): NOT CONFORMANT",
            "toy (test_toy.py::TestToy[[]fine[]]): CONFORMANT",
            "other (test_toy.py::TestOther): CONFORMANT",
        ]
    )


def test_the_verdict_is_the_same_over_several_processes(bench: Bench) -> None:
    result = bench.run("-n", "2", harness="TroubleHarness(breaks='nodes')", body='known_failures = {"TOY-2": "#1"}')
    assert _verdict(result) == "CONFORMANT WITH 2 DEVIATIONS"
    assert result.ret == 0


# --- which clauses apply ---


def test_a_clause_that_needs_a_capability_runs_where_it_is_declared(bench: Bench) -> None:
    result = bench.run("-v", harness="TroubleHarness(Capability.SECOND_PRECISION)")
    result.stdout.fnmatch_lines(
        ["*test_seconds_are_honoured PASSED*", "*test_seconds_are_refused DOES NOT APPLY*"], consecutive=False
    )


def test_the_refusal_is_tested_where_a_capability_is_not_declared(bench: Bench) -> None:
    result = bench.run("-v")
    result.stdout.fnmatch_lines(["*test_seconds_are_honoured DOES NOT APPLY*", "*test_seconds_are_refused PASSED*"])


def test_a_durable_clause_runs_only_on_a_durable_store(bench: Bench) -> None:
    bench.run("-v").stdout.fnmatch_lines(["*test_the_store_survives DOES NOT APPLY*"])
    bench.run("-v", harness="TroubleHarness(Capability.DURABLE)").stdout.fnmatch_lines(
        ["*test_the_store_survives PASSED*"]
    )


def test_a_clause_that_does_not_apply_is_no_skipped_test(bench: Bench) -> None:
    bench.run("-ra").assert_outcomes(passed=5, skipped=0)


# --- failures and deviations ---


def test_a_failure_names_clause_promise_level_and_place(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(breaks='core')")
    result.stdout.fnmatch_lines(
        [
            "*the core is broken*",
            "*contract clause*",
            "clause:  TOY-1/test_a_node_opens",
            "promise: a node can be opened",
            "level:   core",
            "look at: docs/reference/contract.md#toy-1",
            "*conftest.py:*",
        ]
    )


def test_a_failure_shows_the_clause_and_not_the_machinery(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(breaks='core')")
    result.stdout.no_fnmatch_line("*run_clause.py*")


def test_a_known_deviation_that_fails_is_counted(bench: Bench) -> None:
    known = 'known_failures = {"TOY-2/test_two_nodes_agree": "issue 1", "TOY-2/test_two_nodes_talk": "issue 2"}'
    result = bench.run(harness="TroubleHarness(breaks='nodes')", body=known)
    assert _verdict(result) == "CONFORMANT WITH 2 DEVIATIONS"
    result.stdout.fnmatch_lines(["*known deviation: TOY-2/test_two_nodes_agree (issue 1)*"])
    assert result.ret == 0


def test_a_rule_id_stands_for_all_its_clauses_and_each_must_fail(bench: Bench) -> None:
    result = bench.run(harness="TroubleHarness(breaks='talk')", body='known_failures = {"TOY-2": "issue 1"}')
    assert _verdict(result) == "NOT CONFORMANT"
    result.stdout.fnmatch_lines(["*failed: TOY-2/test_two_nodes_agree", "*known deviation: TOY-2/test_two_nodes_talk*"])


def test_a_single_deviation_is_counted_too(bench: Bench) -> None:
    known = 'known_failures = {"TOY-2/test_two_nodes_talk": "issue 1"}'
    result = bench.run(harness="TroubleHarness(breaks='talk')", body=known)
    assert _verdict(result) == "CONFORMANT WITH 1 DEVIATIONS"


def test_a_deviation_that_did_not_run_leaves_the_verdict_incomplete(bench: Bench) -> None:
    result = bench.run(harness="ToyHarness()", body='known_failures = {"TOY-5": "no outage"}')
    assert _verdict(result) == "INCOMPLETE"


def test_a_known_deviation_that_passes_fails_the_run(bench: Bench) -> None:
    result = bench.run(body='known_failures = {"TOY-2/test_two_nodes_agree": "issue 1"}')
    assert _verdict(result) == "NOT CONFORMANT"
    result.stdout.fnmatch_lines(["*TOY-2/test_two_nodes_agree passes, but known_failures says it does not (issue 1)*"])
    assert result.ret == 1


def test_a_deviation_does_not_excuse_a_broken_fixture(bench: Bench) -> None:
    result = bench.run(harness="1 / 0", body='known_failures = {"TOY-2": "issue 1"}')
    assert _verdict(result) == "NOT CONFORMANT"


# --- what is refused when the class is defined ---


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def test_a_node_opens(self): pass", "overrides test_a_node_opens: a clause cannot be overridden"),
        ("test_a_node_opens = None", "overrides test_a_node_opens: a clause cannot be overridden"),
        (
            "pass\n\nclass Mixin:\n    test_a_node_opens = None\n\nclass TestMixed(Mixin, SchedulerContract):",
            "overrides",
        ),
        ('known_failures = {"TOY-1": "x"}', "'TOY-1' is core, and core clauses cannot be deviations"),
        ('known_failures = {"TOY-1/test_a_node_opens": "x"}', "core clauses cannot be deviations"),
        ('known_failures = {"TOY-99": "x"}', "there is no rule or clause 'TOY-99' in the contract"),
        ('known_failures = {"TOY-2": " "}', "needs a reason"),
    ],
)
def test_a_class_that_cannot_be_right_is_an_error_at_collection(bench: Bench, body: str, message: str) -> None:
    result = bench.run(body=body)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])
    assert _verdict(result) is None


# --- the report ---


def test_the_report_holds_clauses_results_and_verdict(bench: Bench) -> None:
    bench.run(
        "--rota-report=report.json",
        harness="TroubleHarness(breaks='nodes')",
        body='known_failures = {"TOY-2": "issue 1"}',
    )
    report = json.loads((bench.path / "report.json").read_text())
    assert report["contract_version"] == "2"
    assert {each["id"] for each in report["clauses"]} >= {"TOY-1/test_a_node_opens", "TOY-3/test_the_store_survives"}
    (subject,) = report["subjects"]
    assert (subject["backend"], subject["verdict"]) == ("toy", "CONFORMANT WITH 2 DEVIATIONS")
    results = {each["clause"]: (each["result"], each["detail"]) for each in subject["results"]}
    assert results["TOY-1/test_a_node_opens"] == ("passed", "")
    assert results["TOY-2/test_two_nodes_agree"] == ("known deviation", "issue 1")
    assert results["TOY-3/test_the_store_survives"][0] == "not applicable"


def test_the_report_of_a_partial_run_has_no_verdict(bench: Bench) -> None:
    bench.run("-k", "agree", "--rota-report=report.json")
    (subject,) = json.loads((bench.path / "report.json").read_text())["subjects"]
    assert subject["verdict"] is None
    assert [each["clause"] for each in subject["results"]] == ["TOY-2/test_two_nodes_agree"]


# --- manners ---


def test_the_plugin_is_light_for_projects_that_do_not_use_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_the_pack_was_imported():
            assert not {"rota", "rota_contracts.contract", "rota_contracts.families", "hypothesis"} & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:asyncio", timeout=PATIENCE)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*Rota contract*")


def test_a_class_without_a_harness_says_what_it_needs(bench: Bench) -> None:
    result = bench.run(body="pass\n\nclass TestBare(SchedulerContract):\n    pass\n\nclass Rest:")
    result.stdout.fnmatch_lines(["*TestBare needs a fixture `harness` that returns a Harness*"])
