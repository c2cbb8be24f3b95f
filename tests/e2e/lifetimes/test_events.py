"""Events of dead workflows may come twice, late and in any order."""

from __future__ import annotations

from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.replayed import Replayed
from tests.e2e.lifetimes.scene import TIMES
from tests.e2e.lifetimes.underway import Underway
from tests.e2e.looks import wait_for_looks

LOOKS = 1 + 1 + 2 + 1 + 2
"""The first and the second of its own; two more events, a second look, and those of the events."""


def test_events_that_come_again_free_nothing_of_those_who_came_later(underway: Underway) -> None:
    replayed: list[Replayed] = underway["replayed"]
    assert [(each.third.status, each.fourth.status) for each in replayed] == (
        [("SUCCEEDED", "SUCCEEDED")] * TIMES
    )
    assert [each.overlap_seconds for each in replayed] == [0] * TIMES


def test_all_those_events_were_looked_at(deployment: Deployment, underway: Underway) -> None:
    replayed: list[Replayed] = underway["replayed"]
    executions = [execution for each in replayed for execution in each.dead]
    wait_for_looks(deployment, executions, least=LOOKS)


def test_an_event_that_names_the_holder_itself_frees_its_lock(underway: Underway) -> None:
    """What the events above would have done, were they not told apart."""
    replayed: list[Replayed] = underway["event of the living"]
    assert all(each.overlap_seconds > 0 for each in replayed)
