"""When an iteration fails, the locks of its siblings end with their workflow, as documented."""

from __future__ import annotations

import pytest

from fairlock.protocol.lease_time import stored_end_ms
from tests.e2e.attacks.siblings import ERROR, FAILING, Siblings
from tests.e2e.attacks.stack import LEASE
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns


@pytest.mark.parametrize("which", FAILING)
def test_what_its_siblings_held_and_waited_for_is_free_long_before_their_leases_end(
    runs: ScenarioRuns, which: str
) -> None:
    siblings: Siblings = runs.only(which)
    assert siblings.ended is not None
    assert (siblings.ended.status, siblings.ended.error) == ("FAILED", ERROR)
    assert siblings.seconds < LEASE.to_seconds() / 2


def test_control_what_is_handed_to_a_stopped_one_of_a_workflow_that_goes_on_ends_with_its_lease(
    runs: ScenarioRuns,
) -> None:
    siblings: Siblings = runs.only("handed, and it goes on")
    assert siblings.seconds > PLAIN_LEASE_SECONDS
    assert siblings.seconds < 10 * stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000


def test_two_services_over_one_table_free_each_lock_once_and_serve_the_next(
    runs: ScenarioRuns,
) -> None:
    """Both reapers make their passes over the same claims."""
    siblings: Siblings = runs.only("two services")
    assert siblings.held == (1, 1)
    assert siblings.ended is not None
    assert siblings.ended.status == "SUCCEEDED"
