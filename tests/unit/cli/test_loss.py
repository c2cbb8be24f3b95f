"""A command whose lock is lost is ended, with all that it has started."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from fairlock.cli import exit_codes
from tests.unit.cli.fleet import FULL, Fleet, Streams, outcome, until

LEAVES_A_CHILD = "(trap '' TERM; while :; do sleep 0.05; done) & echo $! > child; echo $$ > pid"
POLITE = f"""
{LEAVES_A_CHILD}
trap 'touch stopped; exit 0' TERM; touch ready
while :; do sleep 0.05; done
"""
STUBBORN = f"""
trap '' TERM
{LEAVES_A_CHILD}; touch ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("streams", [{}, FULL], ids=["told", "no line can be written"])
def test_a_command_whose_lock_is_lost_may_end_by_itself(fleet: Fleet, streams: Streams) -> None:
    process = fleet.started("run polite --lease 2 -- sh -c", POLITE, streams=streams)
    fleet.lose("polite")
    status, _, errors = outcome(process)
    assert status == exit_codes.LOST == 76
    ours = [line for line in errors.splitlines() if line != "Terminated"]  # of the shell
    assert streams or ours == [
        "fairlock: lock 'polite' is lost: another owner has it, or it was freed by force",
        "fairlock: lock 'polite' is lost; the command is ended",
    ]
    assert (fleet.home / "stopped").exists()
    assert not fleet.runs("pid")
    until(lambda: not fleet.runs("child"))


def test_a_command_that_does_not_end_is_killed_with_all_it_has_started(fleet: Fleet) -> None:
    process = fleet.started("run stubborn --lease 2 --grace 0.3 -- sh -c", STUBBORN)
    fleet.lose("stubborn")
    assert outcome(process)[0] == 76
    until(lambda: not fleet.runs("pid") and not fleet.runs("child"))


def test_while_the_lock_is_held_nothing_is_ended(fleet: Fleet) -> None:
    """The control: TERM by itself does not end it, so what ends it elsewhere is the KILL.

    Without --max-hold it runs for longer than the commands below may.
    """
    process = fleet.started("run kept --lease 1 --grace 0.3 -- sh -c", STUBBORN)
    process.send_signal(signal.SIGTERM)
    [first] = fleet.state("kept").holders
    until(lambda: time.time() * 1000 > first.acquired_at_ms + 3500)
    assert fleet.state("kept").holders[0].revision > first.revision + 1
    assert fleet.runs("pid")
    assert fleet.runs("child")
    assert process.poll() is None
    os.killpg(int((fleet.home / "pid").read_text()), signal.SIGKILL)
    assert outcome(process)[0] == 128 + signal.SIGKILL


def test_a_process_that_was_frozen_for_longer_than_its_lease_ends_the_command(
    fleet: Fleet,
) -> None:
    process = fleet.started("run frozen --lease 3 -- sh -c", POLITE)
    process.send_signal(signal.SIGSTOP)
    [holder] = fleet.state("frozen").holders
    until(lambda: time.time() * 1000 > holder.expires_at_ms + 1000)
    assert fleet.runs("pid")
    process.send_signal(signal.SIGCONT)
    assert outcome(process)[0] == 76
    assert (fleet.home / "stopped").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of this death")
def test_a_command_ends_with_fairlock_even_if_that_is_killed(fleet: Fleet) -> None:
    """The control is a process that the command has started: no one ends that."""
    script = "sleep 600 & echo $! > descendant; echo $$ > command; exec sleep 600"
    process = fleet.start("run killed -- sh -c", script)
    command = fleet.file("command")
    until(lambda: command.read_text().strip())
    assert fleet.runs("command")
    process.kill()
    until(lambda: not fleet.runs("command"))
    assert fleet.runs("descendant")


SHORT = "run capped --lease 1 --grace 0.3 --max-hold 2.5 -- sh -c"
"""A command that has 1.2 s before TERM."""


def test_a_command_gets_term_before_its_max_hold_is_over_and_the_lock_is_released(
    fleet: Fleet,
) -> None:
    assert fleet.run(SHORT, "exit 7")[0] == 7, "it has ended in time"
    status, _, errors = fleet.run(SHORT, POLITE)
    assert status == 124
    told = "fairlock: lock 'capped' has been held for nearly its max_hold; the command is ended"
    assert told in errors.splitlines()
    assert "is lost" not in errors
    assert (fleet.home / "stopped").exists()
    assert fleet.state("capped").held == 0


def test_a_command_that_ignores_term_is_killed_before_another_may_begin(fleet: Fleet) -> None:
    process = fleet.started(SHORT, STUBBORN)
    after = "for p in pid child; do cat /proc/$(cat $p)/status; done | grep State > still; true"
    next_one = fleet.start("run capped --lease 2 -- sh -c", after)
    assert outcome(process)[0] == 124
    assert outcome(next_one)[0] == 0
    states = (fleet.home / "still").read_text().splitlines()
    assert all("Z" in state for state in states)  # A zombie that no one has asked about.
