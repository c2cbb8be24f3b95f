"""Case 2: guards around every kind of task, in machines of both query languages."""

from __future__ import annotations

import pytest

from tests.smoke.account import Account
from tests.smoke.facts import outputs


@pytest.mark.parametrize("machine", ["FormsPath", "FormsJsonata"])
def test_guards_of_every_form_work_in_one_machine(account: Account, machine: str) -> None:
    """Decides whether AWS accepts and runs guards around a task, chain, Choice, Parallel, guard."""
    execution = account.workflows.start(machine, {"a": [1]})
    assert outputs(account, [execution]) == [[{"a": [1]}, {"a": [1]}]]
    name = execution.rpartition(":")[2]
    assert [account.workflows.held(f"{kind}/{name}") for kind in ("form", "inner")] == [0, 0]
    entered = account.workflows.states_entered(execution)
    guards = [state.partition("Guard: ")[0] for state in entered if state.endswith("Guard: Enter")]
    assert guards == ["Bare", "Chain", "Choice", "Parallel", "Nested"]
