"""Lines to paste into a shell while the embedded AWS stays up. Pure."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from examples.demo.facts import Role
from examples.demo.runner import Deployed

EXPORTED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION")
OWNER_ID = "me-and-my-terminal"
_TWO_OF_THEM = "--max-items 2 --query 'executions[].[name,status]' --output text"


def lines(deployed: Deployed, endpoint_url: str, environment: Mapping[str, str]) -> str:
    """Shell lines: the environment, the command line, two direct invocations, one workflow."""
    aws = f"aws --endpoint-url {shlex.quote(endpoint_url)}"
    request = {"lock_name": "nightly-report", "owner_id": OWNER_ID}
    lease = {"lease_seconds": 300}
    charge = shlex.quote(json.dumps({"account_id": "alice", "amount": 10, "work_seconds": 5}))
    return "\n".join(
        (
            "# the environment: credentials of this embedded AWS, which no real account knows",
            *(f"export {name}={shlex.quote(environment[name])}" for name in EXPORTED),
            "export AWS_PAGER=",
            f"export AWS_ENDPOINT_URL={shlex.quote(endpoint_url)}",
            f"export FAIRLOCK_TABLE_NAME={shlex.quote(deployed.lock_table)}",
            "",
            "# who holds what; then hold the account's lock for a moment: the workflows below wait",
            ".venv/bin/fairlock ls",
            ".venv/bin/fairlock run account/alice -- sleep 20 &",
            "",
            "# acquire a lock for five minutes, and release it",
            _invoke(aws, deployed.functions[Role.ACQUIRE], request | lease),
            _invoke(aws, deployed.functions[Role.RELEASE], request),
            "",
            *_workflow(aws, deployed.guarded_machine, charge, "that waits in the queue"),
            *_workflow(aws, deployed.polling_machine, charge, "that waits by polling"),
        )
    )


def _workflow(aws: str, machine_arn: str, charge: str, which: str) -> tuple[str, str, str, str]:
    machine = f"--state-machine-arn {shlex.quote(machine_arn)}"
    return (
        f"# run a guarded workflow {which} (start it twice at once: the second one waits)",
        f"{aws} stepfunctions start-execution {machine} --input {charge}",
        f"{aws} stepfunctions list-executions {machine} {_TWO_OF_THEM}",
        "",
    )


def _invoke(aws: str, function: str, payload: Mapping[str, Any]) -> str:
    # A payload on the command line is read as base64 by version 2 of the CLI, as text by version 1.
    return (
        f"echo {shlex.quote(json.dumps(payload))} |"
        f" {aws} lambda invoke --function-name {shlex.quote(function)}"
        " --payload fileb:///dev/stdin /dev/stdout"
    )
