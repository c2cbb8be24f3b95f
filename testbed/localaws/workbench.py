"""Functions and state machines in one line each, for experiments and tests on a LocalAws."""

import dataclasses
import io
import itertools
import json
import time
import zipfile
from collections.abc import Mapping
from typing import Any

from testbed.localaws.errors import LocalAwsError
from testbed.localaws.local_aws import LocalAws

ROLE_ARN = "arn:aws:iam::000000000000:role/workbench"
_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How an execution ended; `output` is decoded, and None unless it succeeded."""

    arn: str
    status: str
    output: Any = None
    error: str | None = None
    cause: str | None = None
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Queue:
    """A queue made on a workbench."""

    url: str
    arn: str


class Workbench:
    """Makes what a test needs in an embedded AWS; everything goes with the instance."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        self.functions = aws.client("lambda", read_timeout=70, retries={"max_attempts": 0})
        self.workflows = aws.client("stepfunctions", retries={"max_attempts": 0})
        self.tables = aws.client("dynamodb", retries={"max_attempts": 0})
        self.queues = aws.client("sqs", retries={"max_attempts": 0})

    def function(self, source: str, **settings: Any) -> str:
        """Create a Lambda function from Python source that defines `handler`; answers its name."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr("index.py", source)
        name = f"function-{next(_numbers)}"
        self.functions.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Handler="index.handler",
            Role=ROLE_ARN,
            Code={"ZipFile": archive.getvalue()},
            **settings,
        )
        return name

    def table(self) -> str:
        """Create a table with the string key `pk`; answers its name."""
        name = f"table-{next(_numbers)}"
        self.tables.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        )
        return name

    def queue(self, **attributes: object) -> Queue:
        """Create a queue; an attribute that is no text is written as JSON, as SQS wants it."""
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in attributes.items()
        }
        name = f"queue-{next(_numbers)}"
        url = self.queues.create_queue(QueueName=name, Attributes=texts)["QueueUrl"]
        found = self.queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return Queue(url=url, arn=found["Attributes"]["QueueArn"])

    def consume(self, queue: Queue, function: str, **settings: Any) -> None:
        """Let the function get the queue's messages, by an event source mapping."""
        self.functions.create_event_source_mapping(
            FunctionName=function, EventSourceArn=queue.arn, **settings
        )

    def received(self, queue: Queue, *, seconds: int = 20) -> list[dict[str, Any]]:
        """Up to ten messages of the queue, with all attributes; waits for the first."""
        answer = self.queues.receive_message(
            QueueUrl=queue.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=seconds,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))

    def machine(self, definition: Mapping[str, Any], *, kind: str = "STANDARD") -> str:
        """Create a state machine; answers its ARN."""
        machine = self.workflows.create_state_machine(
            name=f"machine-{next(_numbers)}",
            definition=json.dumps(definition),
            roleArn=ROLE_ARN,
            type=kind,
        )
        return str(machine["stateMachineArn"])

    def start(self, definition: Mapping[str, Any], data: Any = None) -> str:
        """Start an execution of a new state machine; answers the execution's ARN."""
        started = self.workflows.start_execution(
            stateMachineArn=self.machine(definition), input=json.dumps(data)
        )
        return str(started["executionArn"])

    def run(self, definition: Mapping[str, Any], data: Any = None) -> Ended:
        """Start an execution and wait for its end."""
        return self.wait(self.start(definition, data))

    def wait(self, execution_arn: str, *, seconds: float = 30) -> Ended:
        """Wait until an execution has ended; LocalAwsError when it still runs after the time."""
        deadline, pause = time.monotonic() + seconds, 0.01
        while time.monotonic() < deadline:
            found = self.workflows.describe_execution(executionArn=execution_arn)
            if found["status"] != "RUNNING":
                output = found.get("output") if found["status"] == "SUCCEEDED" else None
                return Ended(
                    arn=execution_arn,
                    status=found["status"],
                    output=None if output is None else json.loads(output),
                    error=found.get("error"),
                    cause=found.get("cause"),
                    seconds=(found["stopDate"] - found["startDate"]).total_seconds(),
                )
            time.sleep(pause)
            pause = min(0.1, 1.5 * pause)
        raise LocalAwsError(f"{execution_arn} still runs after {seconds:.0f} s")

    def events(self, execution_arn: str) -> list[dict[str, Any]]:
        """The execution's whole history."""
        pages = self.workflows.get_paginator("get_execution_history").paginate(
            executionArn=execution_arn
        )
        return [event for page in pages for event in page["events"]]
