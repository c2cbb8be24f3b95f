"""`fairlock run` inside `run`: one lock can only wait for itself, others are nested as usual."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fairlock.cli import exit_codes
from fairlock.names import HELD_LOCKS_VARIABLE
from testbed.localaws import LocalAws
from tests.unit.cli.fleet import TABLE

RUN = (sys.executable, "-m", "fairlock", "run")
INNER_WAITS = ("--max-wait", "0.1")
SECONDS = 180
"""Three processes, one inside the other, on a machine that may be busy."""


@pytest.fixture
def environment(aws: LocalAws, lock_table: str) -> dict[str, str]:
    return {**os.environ, **aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *words],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_the_same_lock_is_refused_at_once_and_its_command_does_not_start(
    environment: dict[str, str],
) -> None:
    """Without --max-wait, which would be two minutes. The outer one passes the status on."""
    ended = run(environment, "self", "--", *RUN, "self", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (exit_codes.USAGE, "")
    assert "name: must be another lock than that of the `fairlock run` around" in ended.stderr


def test_without_the_variable_it_waits_for_itself(environment: dict[str, str]) -> None:
    """The control."""
    inner = ("env", "-u", HELD_LOCKS_VARIABLE, *RUN, "control", *INNER_WAITS)
    ended = run(environment, "control", "--", *inner, "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (exit_codes.TAKEN, "")
    assert "not handed over" in ended.stderr


def test_it_is_refused_by_the_arn_of_the_table_and_two_levels_below(
    environment: dict[str, str],
) -> None:
    table = f"arn:aws:dynamodb:us-east-1:000000000000:table/{TABLE}"
    middle = (*RUN, "between", "--")
    ended = run(
        environment, "deep", "--", *middle, *RUN, "deep", "--table", table, "--", "echo", "ran"
    )
    assert (ended.returncode, ended.stdout) == (exit_codes.USAGE, "")


def test_another_lock_is_nested(environment: dict[str, str]) -> None:
    ended = run(environment, "outer", "--", *RUN, "inner", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (0, "ran\n")


def test_one_that_does_not_wait_is_told_that_the_lock_is_taken(environment: dict[str, str]) -> None:
    inner = (*RUN, "skipped", "--max-wait", "0", "--taken-exit-code", "9")
    assert run(environment, "skipped", "--", *inner, "--", "echo", "ran").returncode == 9


def test_a_second_permit_of_a_semaphore_is_granted(environment: dict[str, str]) -> None:
    inner = (*RUN, "pool-of-two", "--limit", "2", "--", "echo", "ran")
    ended = run(environment, "pool-of-two", "--limit", "2", "--", *inner)
    assert (ended.returncode, ended.stdout) == (0, "ran\n")


@pytest.mark.parametrize("told", ["ended", "spoilt"])
def test_what_a_run_that_is_over_has_left_in_the_environment_refuses_nothing(
    environment: dict[str, str], told: str
) -> None:
    """A process that outlives the command inherits the variable, and may lock later."""
    leaves = "import os; print(os.environ['FAIRLOCK_HELD_LOCKS'])"
    left = run(environment, "left", "--", sys.executable, "-c", leaves).stdout
    assert [held["name"] for held in json.loads(left)] == ["left"]
    later = {**environment, HELD_LOCKS_VARIABLE: left if told == "ended" else "{not JSON"}
    assert run(later, "left", "--", "echo", "ran").stdout == "ran\n"


def test_readers_run_side_by_side_and_a_writer_is_told_that_the_lock_is_taken(
    environment: dict[str, str],
) -> None:
    """The inner commands would wait for the outer one: those that may wait are refused at once."""
    outer = ("pages", "--shared", "--")
    reads = (*RUN, "pages", "--shared", "--max-wait", "0", "--", "echo", "read")
    assert run(environment, *outer, *reads).stdout == "read\n"
    writes = (*RUN, "pages", "--max-wait", "0", "--", "echo", "wrote")
    assert run(environment, *outer, *writes).returncode == exit_codes.TAKEN
    for waits in ((*RUN, "pages", "--shared"), (*RUN, "pages", "--shared", "--limit", "50")):
        ended = run(environment, *outer, *waits, "--", "echo", "read")
        assert (ended.returncode, ended.stdout) == (exit_codes.USAGE, "")
