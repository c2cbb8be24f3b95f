"""A branch is stopped because its sibling failed, and its execution goes on.

No Catch runs in it, and nobody is told: an execution that runs is not reaped, nor robbed.
"""

from __future__ import annotations

import time

import pytest

from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.lifetimes.scene import TOLERANCE_SECONDS, Scene
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS

GOES_ON_SECONDS = 40
OVER_SECONDS = PLAIN_LEASE_SECONDS + TOLERANCE_SECONDS + 1


def goes_on(scene: Scene, execution: str) -> bool:
    return "GoesOn" in scene.deployment.states_entered(execution)


@pytest.mark.parametrize("machine", ["PlainSibling", "KeepAliveSibling"])
def test_what_the_branch_held_is_taken_until_the_execution_ends(
    deployment: Deployment, machine: str
) -> None:
    """Which is documented: the guard belongs around the whole, or a Catch into the branch."""
    scene = Scene(deployment)
    execution = scene.start_inside(machine, seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(scene, execution))
    time.sleep(OVER_SECONDS)  # A lease ends by the clock and by nothing else.
    assert (scene.ask()["acquired"], deployment.is_running(execution)) == (False, True)
    scene.stop(execution)
    wait_until(lambda: scene.holders() == [])


def test_what_it_is_handed_later_is_free_after_its_lease(deployment: Deployment) -> None:
    """Nobody was there to be told, so Step Functions is not asked either."""
    scene = Scene(deployment)
    owner_id = scene.ask(lease_seconds=600)["owner_id"]
    execution = scene.start_behind("PlainSibling", seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(scene, execution))
    deployment.invoke("Release", lock_name=scene.lock, owner_id=owner_id)
    assert scene.holders() == [execution]
    scene.ask_until_granted()
    assert deployment.is_running(execution)
    scene.stop(execution)
