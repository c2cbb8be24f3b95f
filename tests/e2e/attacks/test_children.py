"""A distributed Map: each child is an owner of its own, and its locks end with it."""

from __future__ import annotations

import pytest

from fairlock.protocol.lease_time import stored_end_ms
from tests.e2e.attacks.children import FAILING, REDRIVEN, Children
from tests.e2e.attacks.siblings import Siblings
from tests.e2e.attacks.stack import LEASE
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

TOO_MANY = "States.ExceedToleratedFailureThreshold"


@pytest.mark.parametrize("which", FAILING)
def test_what_aborted_children_held_and_waited_for_is_free_long_before_their_leases_end(
    runs: ScenarioRuns, which: str
) -> None:
    children: Siblings = runs.only(which)
    assert children.ended is not None
    told = {"that fails": ("FAILED", TOO_MANY), "that is stopped": ("ABORTED", None)}
    assert (children.ended.status, children.ended.error) == told[which]
    assert children.seconds < LEASE.to_seconds() / 2


def test_a_tolerated_failure_releases_its_lock_and_leaves_the_other_children_alone(
    runs: ScenarioRuns,
) -> None:
    children: Children = runs.only("that tolerates")
    assert children.ended.status == "SUCCEEDED"
    assert children.left == (0, 0)
    assert children.seconds < LEASE.to_seconds() / 2


def test_each_child_holds_under_the_arn_of_its_own_execution(runs: ScenarioRuns) -> None:
    children: Children = runs.only("that tolerates")
    assert len(set(children.owners)) == len(children.owners) == 2
    assert all("/Each:" in owner for owner in children.owners)


def test_a_child_of_which_no_event_tells_keeps_its_lock_for_its_lease_and_no_longer(
    runs: ScenarioRuns,
) -> None:
    """What holds if AWS sends no events of children, whose own status is asked for instead."""
    children: Children = runs.only("that no event tells of")
    assert children.ended.error == TOO_MANY
    assert children.seconds < 10 * stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000


@pytest.mark.parametrize("machine", REDRIVEN)
def test_iterations_branches_and_children_that_are_redriven_wait_and_work_again(
    runs: ScenarioRuns, machine: str
) -> None:
    children: Children = runs.only(f"redriven {machine}")
    assert children.ended.status == "SUCCEEDED"
    assert children.left == (0, 0)


@pytest.mark.parametrize(("which", "status"), [("inner", "FAILED"), ("outer", "ABORTED")])
def test_each_of_two_nested_workflows_loses_its_own_lock_with_its_own_end(
    runs: ScenarioRuns, which: str, status: str
) -> None:
    nested: Children = runs.only(f"nested, the {which} one is stopped")
    assert nested.ended.status == status
    assert len(set(nested.owners)) == 2
    assert nested.seconds < LEASE.to_seconds() / 2
