"""An account of AWS, real or embedded, with what the smoke test has deployed into it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import boto3
import pytest
from aws_cdk import App, RemovalPolicy
from aws_cdk import aws_logs as logs
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.lock_stack import LockStack
from infra.settings import Settings
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.optimistic.stack import OptimisticForms
from tests.smoke.separate_stacks import (
    SmokeEvents,
    SmokeKeys,
    SmokeRetained,
    SmokeTokenInMap,
    SmokeTokenInMapByPath,
    SmokeWatching,
)
from tests.smoke.stack import SmokeWorkflows

ROOT: Final = Path(__file__).resolve().parents[2]
SERVICE: Final = "FairlockSmoke"
WORKFLOWS: Final = "FairlockSmokeWorkflows"
UPDATES: Final = "FairlockSmokeUpdates"
TOKEN_IN_MAP: Final = "FairlockSmokeTokenInMap"
TOKEN_IN_MAP_BY_PATH: Final = "FairlockSmokeTokenInMapByPath"
KEYS: Final = "FairlockSmokeKeys"
RETAINED: Final = "FairlockSmokeRetained"
EVENTS: Final = "FairlockSmokeEvents"
WATCHING: Final = "FairlockSmokeWatching"
DEPLOYED: Final = (SERVICE, WORKFLOWS, UPDATES, WATCHING)
"""By the CDK CLI, before the first case."""
SEPARATE: Final = (TOKEN_IN_MAP, TOKEN_IN_MAP_BY_PATH, KEYS, RETAINED, EVENTS)
"""By single cases."""
_LONGEST_CDK_SECONDS: Final = 1200


SIZES: Final = {
    "iterations": (40, 3),  # of a Map, on one lock
    "stopped": (200, 3),  # executions that are stopped together, each with a lock of its own
    "claims": (2000, 2),  # locks that one execution holds when it is stopped
    "permits": (100, 3),  # of one lock
    "sharing": (300, 5),  # executions that want one of these permits
    "herd": (200, 4),  # executions that wait for one lock
    "answers": (1000, 50),  # of DynamoDB, whose dates are compared
    "interval_seconds": (5, 2),  # of keep_alive, longer than a cold start of a function
    "delay_seconds": (5, 10),  # how late a push may be; this machine may be busy with other tests
    "miss_seconds": (2, 10),  # by how much a wait may miss `max_wait`
}
"""How much of everything: what the design asks for in AWS, and a few in the embedded AWS."""
IN_AWS, EMBEDDED = ({name: size[at] for name, size in SIZES.items()} for at in (0, 1))


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the cases are written against.

    Attributes:
        is_embedded: whether it is the embedded AWS, which cannot decide everything.
        workflows: runs the deployed workflows, and calls the deployed service.
        stacks: creates and deletes those of single cases.
        decides: what the case decides that asks.
        record: shows a figure in the summary of the run.
    """

    is_embedded: bool
    sizes: Mapping[str, int]
    workflows: Deployment
    stacks: CloudFormation
    decides: str = ""
    record: Callable[[str], None] = print

    def client(self, service: str) -> Any:  # noqa: ANN401 - a boto3 client
        return self.workflows.aws.client(service)

    def output(self, name: str, *, stack: str = WORKFLOWS) -> str:
        return self.workflows.outputs[stack][name]

    @contextmanager
    def created(self, stack: str, *, service: str = "") -> Iterator[Deployment]:
        """A stack for the time of a block. Its own lock service is meant if no other one is."""
        try:
            outputs = {**self.workflows.outputs, stack: self.stacks.create(stack)}
            yield replace(self.workflows, outputs=outputs, service=service or stack)
        finally:
            _stop_executions(self.client("stepfunctions"), self.stacks, [stack])
            self.stacks.delete(stack)

    def needs_aws(self, reason: str) -> None:
        """Skips the rest of a case that the embedded AWS cannot decide."""
        if self.is_embedded:
            pytest.skip(f"{self.decides} The embedded AWS cannot: {reason}")

    def tell(self, figure: str) -> None:
        """Shows a figure in the summary of the run."""
        place = "embedded AWS" if self.is_embedded else "AWS"
        self.record(f"{place}: {figure}")


@dataclass(frozen=True)
class Clients:
    """Makes each client once, and closes all. `Deployment` asks its AWS for nothing else."""

    make: Callable[..., Any]
    made: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str, **config: Any) -> Any:  # noqa: ANN401 - a boto3 client
        key = f"{service} {sorted(config.items())}"
        if key not in self.made:
            self.made[key] = self.make(service, **config)
        return self.made[key]

    def close(self) -> None:
        for client in self.made.values():
            client.close()

    def as_aws(self) -> LocalAws:
        return cast("LocalAws", self)


def _in_aws(service: str, **config: Any) -> Any:  # noqa: ANN401 - a boto3 client
    """A client with the credentials and the region of the shell."""
    retries = Config(retries={"mode": "adaptive", "max_attempts": 10})
    merged = retries.merge(Config(**config))
    return boto3.client(service, config=merged)  # type: ignore[call-overload]  # any service


@contextmanager
def embedded(directory: Path) -> Iterator[Account]:
    """The embedded AWS, for as long as the block lasts."""
    _synthesize(directory, EMBEDDED)
    with LocalAws(settings={"LOCALAWS_FEW_ENVIRONMENTS": "1"}) as aws:
        aws.bootstrap()
        outputs = aws.deploy(app=directory, stacks=DEPLOYED)
        with closing(Clients(aws.client)) as clients:
            cloudformation = clients.client("cloudformation")
            yield Account(
                is_embedded=True,
                sizes=EMBEDDED,
                workflows=Deployment(aws=clients.as_aws(), outputs=outputs, service=SERVICE),
                stacks=CloudFormation(cloudformation, assembly=directory, poll_seconds=0.2),
            )


@contextmanager
def in_aws(directory: Path) -> Iterator[Account]:
    """The account and region of the shell's credentials, which were bootstrapped before.

    It refuses to start where one of its stacks exists, so it never touches what it did not deploy.
    When the block is left, however that happens, everything that it deployed is destroyed.
    """
    with ExitStack() as cleanup:  # each step is done, even if one before it fails
        clients = cleanup.enter_context(closing(Clients(_in_aws)))
        cloudformation = clients.client("cloudformation")
        stacks = CloudFormation(cloudformation, assembly=directory, poll_seconds=5)
        present = [stack for stack in (*DEPLOYED, *SEPARATE) if stacks.exists(stack)]
        if present:
            pytest.fail(f"{present} exist in this account already; this test leaves them alone")
        _synthesize(directory, IN_AWS)
        outputs = directory / "outputs.json"
        cleanup.callback(_cdk, directory, "destroy", "--force")
        for stack in SEPARATE:
            cleanup.callback(stacks.delete, stack)
        running = (clients.client("stepfunctions"), stacks, (WORKFLOWS, UPDATES))
        cleanup.callback(_stop_executions, *running)
        _cdk(directory, "deploy", "--require-approval=never", f"--outputs-file={outputs}")
        created = json.loads(outputs.read_text())
        workflows = Deployment(aws=clients.as_aws(), outputs=created, service=SERVICE)
        yield Account(is_embedded=False, sizes=IN_AWS, workflows=workflows, stacks=stacks)


def _stop_executions(client: Any, stacks: CloudFormation, names: Iterable[str]) -> None:  # noqa: ANN401 - a boto3 client
    """Stops what failed cases have left running: a state machine is not deleted before it ends."""
    for stack in filter(stacks.exists, names):
        for machine in stacks.resources(stack, "AWS::StepFunctions::StateMachine"):
            try:
                running = client.list_executions(stateMachineArn=machine, statusFilter="RUNNING")
            except client.exceptions.StateMachineTypeNotSupported:  # Express workflows end soon.
                continue
            for execution in running["executions"]:
                client.stop_execution(executionArn=execution["executionArn"])


def _synthesize(directory: Path, sizes: Mapping[str, int]) -> None:
    """In this process: another one would take seconds to start."""
    app = App(outdir=str(directory))
    settings = Settings(
        removal_policy=RemovalPolicy.DESTROY, log_retention=logs.RetentionDays.ONE_DAY
    )
    locks = LockStack(app, SERVICE, settings=settings).locks
    SmokeWorkflows(app, WORKFLOWS, locks=locks, interval_seconds=sizes["interval_seconds"])
    OptimisticForms(app, UPDATES, locks=locks)
    SmokeTokenInMap(app, TOKEN_IN_MAP, locks=locks)
    SmokeTokenInMapByPath(app, TOKEN_IN_MAP_BY_PATH, locks=locks)
    SmokeKeys(app, KEYS, locks=locks)
    SmokeRetained(app, RETAINED)
    SmokeEvents(app, EVENTS)
    SmokeWatching(app, WATCHING)
    app.synth()


def _cdk(directory: Path, *arguments: str) -> None:
    command = ["node_modules/.bin/cdk", *arguments, *DEPLOYED, f"--app={directory}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=_LONGEST_CDK_SECONDS)


# Stacks that live for a `with` block, created from the templates of the cloud assembly.

_POLLS: Final = {"Delay": 1, "MaxAttempts": 600}
_LONGEST_BODY: Final = 51_200


class CloudFormation:
    """Creates and deletes stacks of one account.

    Not guaranteed: assets. The functions of these stacks have the code of a stack that the CDK CLI
    has deployed before, from the same assembly.
    """

    def __init__(self, client: Any, *, assembly: Path, poll_seconds: float) -> None:  # noqa: ANN401 - a boto3 client
        self._client = client
        self._assembly = assembly
        self._polls = {**_POLLS, "Delay": poll_seconds}

    def exists(self, stack: str) -> bool:
        try:
            self._client.describe_stacks(StackName=stack)
        except ClientError as error:
            if "does not exist" in str(error):
                return False
            raise
        return True

    def create(self, stack: str) -> dict[str, str]:
        """Creates a stack; answers its outputs. What a failed creation leaves, `delete` deletes."""
        template = json.loads((self._assembly / f"{stack}.template.json").read_text())
        body = json.dumps(template, separators=(",", ":"))
        assert len(body) <= _LONGEST_BODY, f"{stack}: AWS takes so long a template from S3 only"
        self._client.create_stack(
            StackName=stack,
            TemplateBody=body,
            Capabilities=["CAPABILITY_IAM"],
        )
        self._wait("stack_create_complete", stack)
        [found] = self._client.describe_stacks(StackName=stack)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}

    def delete(self, stack: str) -> None:
        """Deletes a stack; one that is not there does no harm."""
        self._client.delete_stack(StackName=stack)
        self._wait("stack_delete_complete", stack)

    def resources(self, stack: str, kind: str) -> list[str]:
        """The names of a stack's resources of this type."""
        pages = self._client.get_paginator("list_stack_resources").paginate(StackName=stack)
        return [
            str(each["PhysicalResourceId"])
            for page in pages
            for each in page["StackResourceSummaries"]
            if each["ResourceType"] == kind and "PhysicalResourceId" in each
        ]

    def _wait(self, event: str, stack: str) -> None:
        self._client.get_waiter(event).wait(StackName=stack, WaiterConfig=self._polls)


def delete_retained(client: Any, operation: str, argument: str, names: Iterable[str]) -> None:  # noqa: ANN401 - a boto3 client
    """Deletes what outlived its stack; what is missing does no harm."""
    for name in names:
        with suppress(client.exceptions.ResourceNotFoundException):
            getattr(client, operation)(**{argument: name})
