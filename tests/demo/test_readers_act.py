"""The act with readers is judged by what they read, and fails on an empty record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from examples.demo.readers_act import AMOUNT, EARLY, LATE, Read, judge
from examples.demo.runner import OPENING_BALANCE
from tests.demo.builders import guarded_execution

AFTER = OPENING_BALANCE - AMOUNT
EARLY_READ = Read(is_late=False, first=OPENING_BALANCE, last=OPENING_BALANCE, beside=EARLY)
LATE_READ = Read(is_late=True, first=AFTER, last=AFTER, beside=LATE)
GOOD = (*[EARLY_READ] * EARLY, *[LATE_READ] * LATE)
TOGETHER, ALONE, IN_ORDER = range(3)


def failed(reads: Sequence[Read], *, status: str = "SUCCEEDED") -> list[int]:
    checks = judge(reads, replace(guarded_execution(), status=status))
    return [at for at, check in enumerate(checks) if not check.passed]


def test_a_good_act_passes() -> None:
    assert failed(GOOD) == []


@pytest.mark.parametrize(
    ("reads", "faults"),
    [
        ((), [TOGETHER, ALONE, IN_ORDER]),
        ((*[replace(EARLY_READ, beside=1)] * EARLY, *[LATE_READ] * LATE), [TOGETHER]),
        ((replace(EARLY_READ, last=AFTER), *GOOD[1:]), [ALONE]),
        ((*GOOD[:-1], replace(LATE_READ, first=OPENING_BALANCE)), [IN_ORDER]),
        (GOOD[:-1], [IN_ORDER]),
    ],
)
def test_what_went_wrong_is_found(reads: Sequence[Read], faults: list[int]) -> None:
    assert failed(reads) == faults


def test_a_writer_that_failed_is_found() -> None:
    assert failed(GOOD, status="FAILED") == [ALONE]
