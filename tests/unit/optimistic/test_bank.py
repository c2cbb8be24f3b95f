"""The bank of the subject: two concurrent debits, both right ways and the naive one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.bank.account import OverdrawnError, debited

ROOT = Path(__file__).resolve().parents[3]
LINE = re.compile(r"debits of (\d+) .*\), (.+?) +paid +(\d+), .* balance +(-?\d+), .*: (\w+)")


def test_both_right_ways_are_right_and_the_naive_one_loses_a_debit() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "examples.bank"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert LINE.findall(finished.stdout) == [
        ("60", "naive", "120", "40", "WRONG"),
        ("60", "optimistic", "120", "-20", "right"),
        ("60", "with the lock", "120", "-20", "right"),
        ("80", "naive", "160", "20", "WRONG"),
        ("80", "optimistic", "80", "20", "right"),
        ("80", "with the lock", "80", "20", "right"),
    ]


def test_a_debit_may_reach_the_overdraft_limit_and_not_go_below() -> None:
    account = {"balance": 10, "overdraft_limit": 50}
    assert debited(account, 60) == {"balance": -50, "overdraft_limit": 50}
    with pytest.raises(OverdrawnError):
        debited(account, 61)
    with pytest.raises(LookupError):
        debited(None, 1)
