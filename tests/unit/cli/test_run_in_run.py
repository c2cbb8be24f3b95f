"""`fairlock run` inside `run`: one lock can only wait for itself, others are nested as usual."""

from __future__ import annotations

import json
import sys

import pytest

from fairlock import LockClient
from fairlock.cli import exit_codes
from fairlock.names import HELD_LOCKS_VARIABLE
from tests.unit.cli.fleet import TABLE, Fleet, outcome

RUN = (sys.executable, "-m", "fairlock", "run")
TELLS = f'printf %s "${HELD_LOCKS_VARIABLE}" > held.part; mv held.part held; read go'
"""Goes on when its input ends."""


def inside(fleet: Fleet, *outer: str, inner: tuple[str, ...]) -> tuple[int, str, str]:
    """What `run` with the words `inner` answers while one with the words `outer` runs.

    With the environment that the command of the outer one was given.
    """
    around = fleet.start("run", *outer, "--", "sh", "-c", TELLS)
    told = fleet.file("held")
    answered = fleet.run("run", *inner, **{HELD_LOCKS_VARIABLE: told.read_text()})
    told.unlink()
    assert outcome(around)[1:] == ("", "")
    return answered


def test_the_same_lock_is_refused_at_once_and_its_command_does_not_start(fleet: Fleet) -> None:
    """Without --max-wait, which would be two minutes. The outer one passes the status on."""
    ended = fleet.run("run", "self", "--", *RUN, "self", "--", "echo", "ran")
    assert ended[:2] == (exit_codes.USAGE, "")
    assert "name: must be another lock than that of the `fairlock run` around" in ended[2]


def test_without_the_variable_it_waits_for_itself(fleet: Fleet, locks: LockClient) -> None:
    """The control."""
    with locks.hold("control"):
        words = ("run", "control", "--max-wait", "0.1", "--", "echo", "ran")
        status, output, errors = fleet.run(*words)
    assert (status, output) == (exit_codes.TAKEN, "")
    assert "not handed over" in errors


def test_it_is_refused_by_the_arn_of_the_table_and_two_levels_below(fleet: Fleet) -> None:
    table = f"arn:aws:dynamodb:us-east-1:000000000000:table/{TABLE}"
    inner = (*RUN, "deep", "--table", table, "--", "echo", "ran")
    ended = fleet.run("run", "deep", "--", *RUN, "between", "--", *inner)
    assert ended[:2] == (exit_codes.USAGE, "")


def test_another_lock_is_nested(fleet: Fleet) -> None:
    assert inside(fleet, "outer", inner=("inner", "--", "echo", "ran")) == (0, "ran\n", "")


@pytest.mark.parametrize("options", [("--lock", "a", "--lock", "b"), ("--lock=a",)])
def test_the_option_lock_is_refused_with_the_way_to_nest(
    fleet: Fleet, options: tuple[str, ...]
) -> None:
    status, output, errors = fleet.run("run", *options, "--", "echo")
    assert (status, output) == (exit_codes.USAGE, "")
    assert "lock: must be left out" in errors
    assert "fairlock run A -- fairlock run B -- COMMAND" in errors


def test_one_that_does_not_wait_is_told_that_the_lock_is_taken(fleet: Fleet) -> None:
    inner = ("skipped", "--max-wait", "0", "--taken-exit-code", "9", "--", "echo", "ran")
    assert inside(fleet, "skipped", inner=inner)[:2] == (9, "")


def test_a_second_permit_of_a_semaphore_is_granted(fleet: Fleet) -> None:
    pool = ("pool-of-two", "--limit", "2")
    assert inside(fleet, *pool, inner=(*pool, "--", "echo", "ran"))[:2] == (0, "ran\n")


@pytest.mark.parametrize("told", ["ended", "spoilt"])
def test_what_a_run_that_is_over_has_left_in_the_environment_refuses_nothing(
    fleet: Fleet, told: str
) -> None:
    """A process that outlives the command inherits the variable, and may lock later."""
    shows = f'printf %s "${HELD_LOCKS_VARIABLE}"'
    left = fleet.run("run", "left", "--", "sh", "-c", shows)[1]
    assert [held["name"] for held in json.loads(left)] == ["left"]
    later = {HELD_LOCKS_VARIABLE: left if told == "ended" else "{not JSON"}
    assert fleet.run("run", "left", "--", "echo", "ran", **later)[1] == "ran\n"


def test_readers_run_side_by_side_and_a_writer_is_told_that_the_lock_is_taken(fleet: Fleet) -> None:
    """The inner commands would wait for the outer one: those that may wait are refused at once."""
    shared, command = ("pages", "--shared"), ("--", "echo", "ran")
    reads = inside(fleet, *shared, inner=(*shared, "--max-wait", "0", *command))
    assert reads[:2] == (0, "ran\n")
    writes = inside(fleet, *shared, inner=("pages", "--max-wait", "0", *command))
    assert writes[:2] == (exit_codes.TAKEN, "")
    for waits in (shared, (*shared, "--limit", "50")):
        assert inside(fleet, *shared, inner=(*waits, *command))[:2] == (exit_codes.USAGE, "")
