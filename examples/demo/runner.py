"""Starts, stops and watches the demo's executions through Step Functions."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.demo.facts import Account, Execution, Role
from examples.demo.history import execution_from_history, roles_of_states
from examples.demo.ledger import OPENING

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

OPENING_BALANCE = 1000
LOOK_AGAIN_SECONDS = 0.2

Watcher = Callable[[Sequence[Execution]], None]
"""Called with the facts so far, several times a second."""


class DemoFailed(Exception):  # noqa: N818 a sentence in a traceback, not an API
    """The demo cannot go on: what it waited for did not happen by its deadline."""


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What the stacks' outputs say, under the demo's own names."""

    lock_table: str
    accounts_table: str
    unguarded_machine: str
    guarded_machine: str
    polling_machine: str
    lease_seconds: int
    fallback_seconds: int
    functions: Mapping[Role, str]

    @staticmethod
    def from_outputs(outputs: Mapping[str, Mapping[str, str]]) -> "Deployed":
        """Read the outputs of both stacks; a missing one is a KeyError with its name."""
        locks, demo = outputs["Fairlock"], outputs["FairlockDemo"]
        return Deployed(
            lock_table=locks["LockTableName"],
            accounts_table=demo["AccountsTableName"],
            unguarded_machine=demo["UnguardedStateMachineArn"],
            guarded_machine=demo["GuardedStateMachineArn"],
            polling_machine=demo["PollingStateMachineArn"],
            lease_seconds=int(demo["LeaseSeconds"]),
            fallback_seconds=int(demo["FallbackSeconds"]),
            functions={
                Role.ACQUIRE: locks["AcquireFunctionName"],
                Role.RELEASE: locks["ReleaseFunctionName"],
                Role.CHARGE: demo["ChargeFunctionName"],
            },
        )


@dataclass(frozen=True, kw_only=True)
class Started:
    """An execution under way."""

    arn: str
    name: str
    account_id: str
    roles: Mapping[str, Role]


class Runner:
    """The demo's hands: rows, executions, histories.

    Args:
        steps: a Step Functions client.
        dynamodb: a DynamoDB client.
        deployed: what was deployed.
    """

    def __init__(self, steps: "SFNClient", dynamodb: "DynamoDBClient", deployed: Deployed) -> None:
        self.deployed = deployed
        self._steps = steps
        self._dynamodb = dynamodb
        self._roles: dict[str, dict[str, Role]] = {}

    def open_account(self, account_id: str) -> None:
        """Put the account's row back to the opening balance."""
        self._dynamodb.put_item(
            TableName=self.deployed.accounts_table,
            Item={
                "account_id": {"S": account_id},
                "balance": {"N": str(OPENING_BALANCE)},
                "last_change": {"S": OPENING},
            },
        )

    def account(self, account_id: str) -> Account:
        """The row as it is now."""
        row = self._dynamodb.get_item(
            TableName=self.deployed.accounts_table,
            Key={"account_id": {"S": account_id}},
            ConsistentRead=True,
        )["Item"]
        return Account(
            account_id=account_id,
            opening=OPENING_BALANCE,
            closing=int(row["balance"]["N"]),
            last_change=row["last_change"]["S"],
        )

    def start(self, machine_arn: str, name: str, charge: Mapping[str, Any]) -> Started:
        """Start one execution; its name is the id of its charge."""
        roles = self._roles_of(machine_arn)
        arn = self._steps.start_execution(
            stateMachineArn=machine_arn, name=name, input=json.dumps(charge)
        )["executionArn"]
        return Started(arn=arn, name=name, account_id=charge["account_id"], roles=roles)

    def start_all(
        self, machine_arn: str, charges: Mapping[str, Mapping[str, Any]], *, apart_seconds: float
    ) -> list[Started]:
        """Start several, one after the other."""
        batch = []
        for name, charge in charges.items():
            batch.append(self.start(machine_arn, name, charge))
            time.sleep(apart_seconds)
        return batch

    def stop(self, started: Started) -> None:
        """StopExecution: no state of the workflow gets a chance to clean up."""
        self._steps.stop_execution(executionArn=started.arn, error="Demo", cause="stopped at work")

    def facts(self, started: Started) -> Execution:
        """What the history says so far."""
        pages = self._steps.get_paginator("get_execution_history").paginate(
            executionArn=started.arn, PaginationConfig={"PageSize": 1000}
        )
        return execution_from_history(
            name=started.name,
            account_id=started.account_id,
            events=[event for page in pages for event in page["events"]],
            roles=started.roles,
        )

    def watch(
        self,
        batch: Sequence[Started],
        until: Callable[[Execution], bool],
        *,
        within_seconds: float,
        watcher: Watcher = lambda _: None,
    ) -> list[Execution]:
        """Look at the histories until `until` holds for each, and answer them.

        Raises DemoFailed, naming the executions, if that takes longer than `within_seconds`.
        """
        deadline = time.monotonic() + within_seconds
        settled: dict[str, Execution] = {}
        while True:
            seen = [settled.get(started.arn) or self.facts(started) for started in batch]
            for started, execution in zip(batch, seen, strict=True):
                if until(execution):
                    settled[started.arn] = execution
            watcher(seen)
            if len(settled) == len(batch):
                return seen
            if time.monotonic() > deadline:
                late = [e for e, s in zip(seen, batch, strict=True) if s.arn not in settled]
                raise DemoFailed(_in_vain(late, within_seconds))
            time.sleep(LOOK_AGAIN_SECONDS)

    def _roles_of(self, machine_arn: str) -> dict[str, Role]:
        if machine_arn not in self._roles:
            machine = self._steps.describe_state_machine(stateMachineArn=machine_arn)
            definition = json.loads(machine["definition"])
            self._roles[machine_arn] = roles_of_states(definition, self.deployed.functions)
        return self._roles[machine_arn]


def _in_vain(late: Sequence[Execution], seconds: float) -> str:
    names = ", ".join(execution.name for execution in late)
    errors = {call.error for execution in late for call in execution.calls if call.error}
    told = f"; their calls failed with {', '.join(sorted(errors))}" if errors else ""
    return f"waited {seconds:.0f} s in vain for {names}{told}"
