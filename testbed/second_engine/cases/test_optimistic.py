"""OptimisticUpdate with the attribute types that have the same name in every SDK."""

from __future__ import annotations

import uuid

from tests.e2e.deployment import Deployment, Ended

SAME_IN_EVERY_SDK = {
    "text": {"S": 'ä "quoted"\n'},
    "number": {"N": "12345678901234567890"},
    "list": {"L": [{"S": "x"}, {"L": []}, {"M": {"one": {"N": "1"}}}]},
    "map": {"M": {"empty": {"M": {}}, "Ss": {"S": "a name like a type"}}},
}


def test_the_first_write_makes_the_item_and_null_deletes_it(deployment: Deployment) -> None:
    account = f"account-{uuid.uuid4()}"
    made = deployment.run("Replace", {"account": account, "new": SAME_IN_EVERY_SDK})
    assert made.status == "SUCCEEDED", made
    written = {name: made.output[name] for name in SAME_IN_EVERY_SDK}
    assert (written, made.output["version"]) == (SAME_IN_EVERY_SDK, {"N": "1"})
    read = deployment.run("Replace", {"account": account, "only_read": True})
    assert read.output["item"] == made.output
    deleted = deployment.run("Replace", {"account": account, "new": None})
    assert deleted == Ended(status="SUCCEEDED")
    read = deployment.run("Replace", {"account": account, "only_read": True})
    assert read.output["item"] is None
