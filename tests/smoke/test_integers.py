"""Case 6: numbers on their way through JSONata and JSONPath to a function."""

from __future__ import annotations

from tests.smoke.account import Account
from tests.smoke.facts import outputs


def test_fencing_token_and_time_reach_a_function_as_integers(account: Account) -> None:
    """Decides whether Step Functions sends 16 digits as an integer, and not as 1.9E15."""
    execution = account.workflows.start("Integers", {})
    [[jsonata, path]] = outputs(account, [execution])
    assert jsonata["types"] == {"fencing_token": "int", "now_ms": "int"}
    assert path["types"] == {"fencing_token": "int"}
    name = execution.rpartition(":")[2]
    for kind, seen in (("Jsonata", jsonata), ("Path", path)):
        token = account.workflows.state(f"{kind}/{name}").fencing_token
        assert seen["values"]["fencing_token"] == token
        assert token > 1_700_000_000_000_000
