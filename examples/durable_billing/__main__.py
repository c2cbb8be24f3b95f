"""`python -m examples.durable_billing`: three executions charge one customer at the same time.

Everything is in an embedded AWS on loopback. The exit status is 1 if a charge is lost.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Stack

from examples.durable_billing.stack import DurableBilling
from fairlock.cdk import LockService
from testbed.localaws import LocalAws

AMOUNTS: Final = (10, 20, 30)
CUSTOMER: Final = "42"
_LONGEST_SECONDS: Final = 120


def main() -> int:
    """Runs the example; returns the exit status."""
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as directory, LocalAws() as aws:
        app = App(outdir=f"{directory}/cdk.out")
        locks = LockService(Stack(app, "Locks"), "Locks")
        built = Path(directory) / "function"
        DurableBilling(app, "DurableBilling", locks=locks, built=built)
        app.synth()
        aws.bootstrap()
        outputs = aws.deploy(app=f"{directory}/cdk.out", stacks=("Locks", "DurableBilling"))
        found = outputs["DurableBilling"]
        functions = aws.client("lambda")
        started = [
            functions.invoke(
                FunctionName=found["BillingFunctionName"],
                Qualifier="$LATEST",  # Lambda refuses the bare name; your callers name a version
                InvocationType="Event",
                Payload=json.dumps(
                    {"customer_id": CUSTOMER, "amount": amount, "settles_after_seconds": 1}
                ),
            )["DurableExecutionArn"]
            for amount in AMOUNTS
        ]
        for arn in started:
            execution = ended(functions, arn)
            say(f"{execution['Status']}: {execution.get('Result') or execution.get('Error')}\n")
        items = aws.client("dynamodb").scan(TableName=found["CustomersTableName"])["Items"]
    balance = int(items[0]["balance"]["N"])
    say(f"the balance is {balance}, it should be {-sum(AMOUNTS)}\n")
    return 0 if balance == -sum(AMOUNTS) else 1


def ended(functions: Any, arn: str) -> dict[str, Any]:  # noqa: ANN401 - a boto3 client
    """Waits for the end of an execution."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        found: dict[str, Any] = functions.get_durable_execution(DurableExecutionArn=arn)
        if found["Status"] != "RUNNING":
            return found
        time.sleep(0.1)
    message = f"{arn} still runs"
    raise TimeoutError(message)


if __name__ == "__main__":
    sys.exit(main())
