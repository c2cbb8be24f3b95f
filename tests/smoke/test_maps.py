"""Case 7: guards inside a Map, and inside and around a Distributed Map."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.deployment import Deployment
from tests.smoke.account import SERVICE, TOKEN_IN_MAP, TOKEN_IN_MAP_BY_PATH, Account
from tests.smoke.facts import most_inside, outputs

WORK_SECONDS = 1


@pytest.mark.parametrize("machine", ["GuardInMap", "GuardInDistributedMap"])
def test_iterations_take_turns(account: Account, lock: str, machine: str) -> None:
    """Decides whether many iterations, or child executions, get one lock one after the other."""
    items = [{"lock": lock, "seconds": WORK_SECONDS}] * account.sizes.iterations
    execution = account.workflows.start(machine, {"items": items})
    [spans] = outputs(account, [execution])
    seconds = account.workflows.seconds(execution)
    account.tell(f"{machine}: {len(spans)} iterations on one lock took {seconds:.1f} s")
    assert (len(spans), most_inside(spans)) == (account.sizes.iterations, 1)
    assert account.workflows.held(lock) == 0


@pytest.mark.parametrize("stack", [TOKEN_IN_MAP, TOKEN_IN_MAP_BY_PATH])
def test_children_of_a_distributed_map_are_given_the_fencing_token(
    account: Account, lock: str, stack: str
) -> None:
    """Decides whether the ItemSelector of a Distributed Map sees the variable of a guard around it.

    AWS's documentation leaves it open, so each machine has a stack of its own: AWS may refuse it.
    """
    if stack == TOKEN_IN_MAP:
        account.needs_aws("it evaluates no JSONata in the fields of a Distributed Map")
    with account.stacks.created(stack) as created:
        outside = {SERVICE: account.workflows.outputs[SERVICE], stack: created}
        workflows = Deployment(aws=account.workflows.aws, outputs=outside, service=SERVICE)
        ended = workflows.run("DistributedMapInGuard", {"lock": lock, "items": [1, 2]})
        assert ended.status == "SUCCEEDED", ended
        token = workflows.state(lock).fencing_token
        expected: list[Any] = [{"item": item, "fencing_token": token} for item in (1, 2)]
        assert ended.output == expected
