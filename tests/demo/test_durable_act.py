"""The act with durable functions is judged by what happened, and fails on an empty record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples.demo.durable_act import AMOUNTS, Charged, judge
from examples.demo.runner import OPENING_BALANCE

EXPECTED = OPENING_BALANCE - sum(AMOUNTS)
GOOD = (
    Charged(kind="durable function", token=7, invocations=2),
    Charged(kind="workflow", token=8),
    Charged(kind="durable function", token=9, invocations=3),
    Charged(kind="workflow", token=10),
)
FINISHED, NOTHING_LOST, OWN_TOKENS, SLEEPS = range(4)


def failed(charged: Sequence[Charged], *, balance: int = EXPECTED) -> list[int]:
    return [at for at, check in enumerate(judge(charged, balance=balance)) if not check.passed]


def test_a_good_act_passes() -> None:
    assert failed(GOOD) == []


@pytest.mark.parametrize(
    ("charged", "balance", "faults"),
    [
        ((), OPENING_BALANCE, [FINISHED, NOTHING_LOST, OWN_TOKENS, SLEEPS]),
        (GOOD, EXPECTED + 10, [NOTHING_LOST]),
        (
            (*GOOD[:3], Charged(kind="workflow", token=None)),
            EXPECTED,
            [FINISHED, OWN_TOKENS],
        ),
        ((*GOOD[:3], Charged(kind="workflow", token=7)), EXPECTED, [OWN_TOKENS]),
        (
            (Charged(kind="durable function", token=7, invocations=9), *GOOD[1:]),
            EXPECTED,
            [SLEEPS],
        ),
    ],
)
def test_what_went_wrong_is_found(
    charged: Sequence[Charged], balance: int, faults: list[int]
) -> None:
    assert failed(charged, balance=balance) == faults
