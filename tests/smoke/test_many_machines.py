"""Case 19: a service that watches more machines than one rule takes."""

from __future__ import annotations

import json

from tests.smoke.account import WATCHING, Account
from tests.smoke.separate_stacks import WATCHED


def test_a_hundred_watched_machines_fit_the_rules_and_the_policy_of_the_queue(
    account: Account,
) -> None:
    """Decides whether SQS and EventBridge take the policy and the patterns of many machines.

    SQS documents a quota of ten conditions for a policy. Whether each value of one counts is not
    said: this policy has three, one of them with twenty values.
    """
    queue = account.workflows.outputs[WATCHING]["ReapQueueUrl"]
    found = account.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["Policy"])
    policy = found["Attributes"]["Policy"]
    [rules] = [
        each["Condition"]["ArnNotEquals"]["aws:SourceArn"]
        for each in json.loads(policy)["Statement"]
        if "ArnNotEquals" in each.get("Condition", {})
    ]
    patterns = [
        account.client("events").describe_rule(Name=rule.rpartition("/")[2])["EventPattern"]
        for rule in rules
    ]
    named = {
        arn
        for pattern in patterns
        for arn in json.loads(pattern)["detail"]["stateMachineArn"]
        if isinstance(arn, str)
    }
    account.tell(f"{len(rules)} rules, a policy of {len(policy.encode())} bytes")
    assert len(named) == WATCHED
