"""What `make conformance` counts as a difference, and what it leaves to explain."""

from __future__ import annotations

import pytest

from testbed.conformance.known_differences import Difference
from testbed.conformance.outcome import Outcome, Verdict
from testbed.conformance.report import BEGIN, END, Answer, Cell, Row, answers, page, replaced, table

KNOWN = Difference(Verdict.HISTORY, "tells no attempts", "no: no one reads it")
PASSED = Outcome(Verdict.AS_REQUIRED)
ATTEMPTS = Outcome(Verdict.HISTORY, "StepFailed is missing")
STATUS = Outcome(Verdict.DIFFERENT, "status FAILED, not SUCCEEDED")
BROKEN = Outcome(Verdict.FAILED, "KeyError('Status')")


@pytest.mark.parametrize(
    ("cell", "text"),
    [(Cell(PASSED), "as required"), (Cell(ATTEMPTS, KNOWN), "history differs")],
)
def test_what_is_required_or_known_needs_no_work(cell: Cell, text: str) -> None:
    assert (str(cell), cell.is_explained) == (text, True)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(ATTEMPTS), "history differs, not explained: StepFailed is missing"),
        (Cell(STATUS), "different, not explained: status FAILED, not SUCCEEDED"),
        (Cell(STATUS, KNOWN), "different, not explained: status FAILED, not SUCCEEDED"),
        (Cell(BROKEN, KNOWN), "could not run, not explained: KeyError('Status')"),
        (Cell(PASSED, KNOWN), "known to differ, but as required"),
    ],
)
def test_what_is_left_to_explain_is_told(cell: Cell, text: str) -> None:
    assert (str(cell), cell.is_explained) == (text, False)


def test_the_page_counts_and_groups_what_was_run() -> None:
    rows = [
        Row("1-1", "step", "a step", {"one": Cell(PASSED), "two": Cell(PASSED)}),
        Row("1-2", "step", "a retry", {"one": Cell(ATTEMPTS, KNOWN), "two": Cell(PASSED)}),
        Row("1-3", "step", "two retries", {"one": Cell(ATTEMPTS, KNOWN), "two": Cell(STATUS)}),
        Row("2-1", "wait", "a pause", {"one": Cell(PASSED), "two": Cell(PASSED)}),
        Row("5-1", "invoke", "a call", {}, "not used"),
        Row("8-1", "map", "two calls", {"one": Cell(PASSED), "two": Cell(PASSED)}),
    ]
    assert table([rows[2], rows[4]], ("one", "two")).splitlines()[2:] == [
        (
            "| 1-3 | two retries | history differs "
            "| different, not explained: status FAILED, not SUCCEEDED |"
        ),
        "| 5-1 | a call | not run: not used | not run: not used |",
    ]
    assert [line for line in page(rows, ("one", "two")).splitlines() if "---" not in line] == [
        "* one: 3 as required, 2 history differs",
        "* two: 4 as required, 1 different",
        "* not run: the 1 of invoke, because not used",
        "",
        "| engine | requirements | what it does | relied on |",
        "| one | 1-2, 1-3 | tells no attempts | no: no one reads it |",
        "| two | 1-3 | different, not explained: status FAILED, not SUCCEEDED | not known |",
    ]


def test_answers_are_shown_and_another_one_than_before_beside_the_known_one() -> None:
    found = (Answer("accepted", "accepted"), Answer("accepted", "refused"))
    [line] = answers([("a stop", found, "none")], ("one", "two")).splitlines()[2:]
    assert line == "| a stop | accepted | accepted, not refused | none |"


def test_questions_with_the_same_answers_are_one_line() -> None:
    found = (Answer("accepted", "accepted"),)
    rows = [("a stop", found, "none"), ("a second stop", found, "none"), ("an end", found, "all")]
    assert answers(rows, ("one",)).splitlines()[2:] == [
        "| a stop; a second stop | accepted | none |",
        "| an end | accepted | all |",
    ]


def test_only_the_part_between_the_marks_is_written() -> None:
    assert replaced(f"before\n{BEGIN}old\n{END}after\n", "new\n") == (
        f"before\n{BEGIN}new\n{END}after\n"
    )
    with pytest.raises(ValueError, match="lacks the line"):
        replaced("no marks", "new")
