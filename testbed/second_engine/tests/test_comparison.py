"""What `make second-engine` counts as a difference, and what it leaves to explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.second_engine.comparison import Difference, compare, outcomes_of, table

KNOWN = {"case": Difference("LocalStack", "has no redrive")}
ENGINES = ("ministack", "LocalStack")
REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.guard.test_data" name="test_any_json_passes[1]"/>
<testcase classname="tests.e2e.guard.test_data" name="test_any_json_passes[2]"><failure/></testcase>
<testcase classname="tests.e2e.guard.test_errors" name="test_a_name_stays"><error/></testcase>
<testcase classname="tests.e2e.guard.test_errors" name="test_a_cause_stays"><skipped/></testcase>
</testsuite></testsuites>"""


def run(outcomes: list[str]) -> dict[str, list[str]]:
    """What an engine has run; nothing if there are no outcomes."""
    return {"case": outcomes} if outcomes else {}


def test_the_variants_of_a_test_are_one_case(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)
    assert outcomes_of(report) == {
        "guard/data: any json passes": ["passed", "failed"],
        "guard/errors: a name stays": ["error"],
        "guard/errors: a cause stays": ["skipped"],
    }


@pytest.mark.parametrize(
    ("first", "second", "known", "difference"),
    [
        (["passed"], ["passed"], {}, ""),
        (["passed"], ["failed"], KNOWN, "LocalStack: has no redrive"),
        (["passed"] * 2, ["failed", "passed"], KNOWN, "LocalStack: has no redrive"),
    ],
)
def test_what_is_alike_or_known_needs_no_work(
    first: list[str], second: list[str], known: dict[str, Difference], difference: str
) -> None:
    [row] = compare({"case": first}, {"case": second}, known)
    assert (row.difference, row.is_explained) == (difference, True)


@pytest.mark.parametrize(
    ("first", "second", "known", "difference"),
    [
        (["passed"], ["failed"], {}, "not explained"),
        (["passed", "passed"], ["passed"], {}, "not explained"),
        (["passed"], [], {}, "not explained"),
        (["passed"], [], KNOWN, "not explained"),
        ([], ["passed"], {}, "not explained"),
        (["failed"], ["passed"], KNOWN, "not explained"),
        (["passed"] * 2, ["failed"] * 2, KNOWN, "not explained"),
        (["passed"], ["error"], KNOWN, "not explained"),
        (["failed"], ["failed"], {}, "fails on both"),
        (["skipped"], ["skipped"], {}, "fails on both"),
        (["passed"], ["passed"], KNOWN, "known, but gone"),
        ([], [], KNOWN, "known, but gone"),
    ],
)
def test_what_is_left_to_explain_is_told(
    first: list[str], second: list[str], known: dict[str, Difference], difference: str
) -> None:
    [row] = compare(run(first), run(second), known)
    assert (row.difference, row.is_explained) == (difference, False)


def test_the_table_counts_what_it_shows() -> None:
    rows = compare(
        {"same": ["passed"] * 3, "case": ["passed"], "other": ["passed"] * 2},
        {"same": ["passed"] * 3, "case": ["failed"], "other": ["failed", "passed"]},
        KNOWN,
    )
    assert table("Guards", rows, ENGINES).splitlines() == [
        "## Guards",
        "",
        "| case | ministack | LocalStack | difference and whose |",
        "| --- | --- | --- | --- |",
        "| same | 3 passed | 3 passed |  |",
        "| case | passed | failed | LocalStack: has no redrive |",
        "| other | 2 passed | 1 failed, 1 passed | not explained |",
        "",
        "3 cases: 1 alike, 1 different as is known, 1 to explain",
    ]
