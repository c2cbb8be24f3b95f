"""Case 1: errors of Step Functions' own names leave the guard by their names."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Json
from tests.smoke.account import Account
from tests.smoke.facts import outputs

SLEEPS_SECONDS = 6
TOO_BIG = 300_000
KINDS = ("Bare", "KeptAlive")
ERRORS = {
    "States.Timeout": ("Call", {"sleep": SLEEPS_SECONDS}),
    "States.TaskFailed": ("Nest", {}),
    "States.DataLimitExceeded": ("Call", {"big": TOO_BIG}),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_step_functions_is_caught_around_the_guard_by_its_name(
    account: Account, lock: str, error: str
) -> None:
    """Decides whether a Fail state raises an error named States.… under that name.

    Another interpreter turned it into States.Runtime, which nothing catches.
    """
    if error == "States.DataLimitExceeded":
        account.needs_aws("it does not enforce the size of payloads")
    task, inputs = ERRORS[error]
    # AWS names a nested execution's failure States.TaskFailed, the embedded AWS as the child does.
    if account.is_embedded and task == "Nest":
        error = "Child"
    executions = [
        account.workflows.start(
            "Errors", {"lock": f"{lock}/{kind}", "guard": f"{kind}{task}", **inputs}
        )
        for kind in KINDS
    ]
    # No entry of its own catches States.TaskFailed: that name in a Catch means any error but one.
    caught_as = "States.ALL" if task == "Nest" else error
    expected: list[Json] = [{"caught_as": caught_as, "error": error}] * len(KINDS)
    assert outputs(account, executions) == expected
    assert [account.workflows.held(f"{lock}/{kind}") for kind in KINDS] == [0] * len(KINDS)
