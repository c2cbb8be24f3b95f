"""Corrections queue_polling and batch_failures: a queue whose messages a function gets."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.localaws.workbench import ROLE_ARN, Queue, Workbench

WithoutCorrection = Callable[..., Workbench]

# Notes what it got and when; answers what the first message of the batch says, but only once.
NOTES = """
import json, os, time
def handler(event, context):
    records = event['Records']
    if not records: return None
    first = json.loads(records[0]['body'])
    ids = {json.loads(record['body'])['name']: record['messageId'] for record in records}
    with open(os.environ['NOTES'], 'a') as notes:
        notes.write(json.dumps([time.time(), first.get('case'), sorted(ids)]) + '\\n')
    if records[0]['attributes']['ApproximateReceiveCount'] != '1' and 'always' not in first:
        return None
    if 'raise' in first: raise RuntimeError('on purpose')
    return eval(first.get('answer', 'None'))
"""


class Consumer:
    """A function that notes the batches it gets."""

    def __init__(self, bench: Workbench) -> None:
        self._notes = bench.aws.home / f"notes-{time.monotonic_ns()}"
        variables = {"NOTES": str(self._notes)}
        self.function = bench.function(NOTES, Environment={"Variables": variables}, Timeout=2)
        # Warm: a cold start on a busy machine may outlast a visibility timeout.
        bench.functions.invoke(FunctionName=self.function, Payload=b'{"Records": []}')

    def batches(self) -> list[tuple[float, str | None, list[str]]]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def wait_for(self, batches: int) -> None:
        """Wait until the function got so many batches."""
        deadline = time.monotonic() + 30
        while len(self.batches()) < batches:
            if time.monotonic() > deadline:
                raise AssertionError(f"{batches} batches expected: {self.batches()}")
            time.sleep(0.005)

    def moment_of(self, name: str) -> float:
        """When the function got the message."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for moment, _, names in self.batches():
                if name in names:
                    return moment
            time.sleep(0.005)
        raise AssertionError(f"{name} never arrived: {self.batches()}")


def send(bench: Workbench, queue: Queue, *, delay: int | None = None, **fields: object) -> float:
    delayed = {} if delay is None else {"DelaySeconds": delay}
    before = time.time()
    bench.queues.send_message(QueueUrl=queue.url, MessageBody=json.dumps(fields), **delayed)
    return before


def wait_until_empty(bench: Workbench, *queues: Queue) -> None:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    deadline = time.monotonic() + 30
    for queue in queues:
        while time.monotonic() < deadline:
            found = bench.queues.get_queue_attributes(QueueUrl=queue.url, AttributeNames=names)
            if set(found["Attributes"].values()) == {"0"}:
                break
            time.sleep(0.02)
        else:
            raise AssertionError(f"{queue} still has messages")


def test_a_sent_message_reaches_its_function_at_once(corrected: Workbench) -> None:
    """Each is sent right after a look at the queue: by the tick alone each would wait a second."""
    queue, consumer = corrected.queue(), Consumer(corrected)
    corrected.consume(queue, consumer.function)
    names = [f"warm-{number}" for number in range(5)]
    waits = [-send(corrected, queue, name=name) + consumer.moment_of(name) for name in names]
    assert min(waits) < 0.5  # If the machine has time for it.


def seconds_of_delays(bench: Workbench) -> tuple[float, float]:
    """How long a message with a delay of its own and one with the queue's were on their way.

    Both are due half a second before the emulator's tick: other messages in between set that.
    """
    own, queues_, consumer = bench.queue(), bench.queue(DelaySeconds="1"), Consumer(bench)
    for queue in (own, queues_):
        bench.consume(queue, consumer.function)
    sent = [send(bench, own, name="own", delay=1), send(bench, queues_, name="queue's")]
    time.sleep(0.5)
    send(bench, own, name="between")
    own_wait, queues_wait = (consumer.moment_of(name) for name in ("own", "queue's"))
    return own_wait - sent[0], queues_wait - sent[1]


def usual_seconds_of_delays(bench: Workbench) -> list[float]:
    rounds = [seconds_of_delays(bench) for _ in range(3)]
    return [statistics.median(seconds) for seconds in zip(*rounds, strict=True)]


def test_a_delayed_message_arrives_when_its_delay_is_over_and_in_the_control_with_the_next_tick(
    corrected: Workbench, left_out: WithoutCorrection
) -> None:
    """Half a second later; at the same time, so that a busy machine slows both down."""
    with ThreadPoolExecutor(2) as pool:
        benches = corrected, left_out("queue_polling")
        prompt, control = pool.map(usual_seconds_of_delays, benches)
    for seconds, seconds_of_the_control in zip(prompt, control, strict=True):
        assert 1 <= seconds < seconds_of_the_control - 0.2


def names(*failed: str) -> str:
    """The answer that names these messages of the batch, as an expression over `ids`."""
    failures = ", ".join(f"{{'itemIdentifier': {value}}}" for value in failed)
    return f"{{'batchItemFailures': [{failures}]}}"


BATCH, ONCE = ["a", "b"], [["a", "b"]]
ANSWERS = {
    names("ids['a']"): [BATCH, ["a"]],
    names("ids['a']", "ids['b']"): [BATCH, BATCH],
    names(): ONCE,
    "{'batchItemFailures': None}": ONCE,
    "{}": ONCE,
    "None": ONCE,
    names("'of another batch'"): [BATCH, BATCH],
    names("''"): [BATCH, BATCH],
    names("None"): [BATCH, BATCH],
    "{'batchItemFailures': [{'wrong key': ids['a']}]}": [BATCH, BATCH],
    "'not an object'": [BATCH, BATCH],
}
MALFORMED = [names("'of another batch'"), names("''"), "'not an object'"]


def batches_by_answer(bench: Workbench, answers: Any) -> dict[str, list[list[str]]]:
    """For each answer to a first batch of two: what the function got in all."""
    consumer = Consumer(bench)
    queues = {answer: bench.queue(VisibilityTimeout="2") for answer in answers}
    for number, (answer, queue) in enumerate(queues.items(), start=1):
        for name in ("a", "b"):
            send(bench, queue, name=name, case=answer, answer=answer)
        bench.consume(queue, consumer.function, FunctionResponseTypes=["ReportBatchItemFailures"])
        consumer.wait_for(batches=number)  # one after the other needs but one warm environment
    wait_until_empty(bench, *queues.values())
    found: dict[str, list[list[str]]] = {answer: [] for answer in answers}
    for _, case, names_ in consumer.batches():
        found[str(case)].append(names_)
    return found


def test_the_answer_decides_which_messages_come_again(corrected: Workbench) -> None:
    assert batches_by_answer(corrected, ANSWERS) == ANSWERS


def test_control_messages_of_a_malformed_answer_are_lost(left_out: WithoutCorrection) -> None:
    bench = left_out("batch_failures")
    assert batches_by_answer(bench, MALFORMED) == dict.fromkeys(MALFORMED, ONCE)


def test_without_report_batch_item_failures_the_answer_means_nothing(corrected: Workbench) -> None:
    queue, consumer = corrected.queue(), Consumer(corrected)
    send(corrected, queue, name="a", answer=names("ids['a']"))
    corrected.consume(queue, consumer.function)
    wait_until_empty(corrected, queue)
    assert [names_ for _, _, names_ in consumer.batches()] == [["a"]]


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_queue(
    corrected: Workbench,
) -> None:
    letters, consumer = corrected.queue(), Consumer(corrected)
    policy = {"deadLetterTargetArn": letters.arn, "maxReceiveCount": 2}
    raises, named = (corrected.queue(VisibilityTimeout="2", RedrivePolicy=policy) for _ in "ab")
    send(corrected, raises, name="raises", always=True, **{"raise": True})
    send(corrected, named, name="named", always=True, answer=names("ids['named']"))
    for queue in (raises, named):
        corrected.consume(
            queue, consumer.function, FunctionResponseTypes=["ReportBatchItemFailures"]
        )
    wait_until_empty(corrected, raises, named)
    found = corrected.received(letters)
    assert sorted(
        (json.loads(message["Body"])["name"], message["Attributes"]["DeadLetterQueueSourceArn"])
        for message in found
    ) == [("named", named.arn), ("raises", raises.arn)]
    assert sorted(names_ for _, _, names_ in consumer.batches()) == [
        ["named"],
        ["named"],
        ["raises"],
        ["raises"],
    ]


# From the end of an execution to a function, all made by CloudFormation as the reaper is.


SOURCE = """
import json, os
def handler(event, context):
    with open(os.environ['NOTES'], 'a') as notes:
        for record in event['Records']:
            notes.write(json.dumps(json.loads(record['body'])['detail']) + '\\n')
    return {'batchItemFailures': []}
"""


def template(machine: str, notes: str) -> dict[str, Any]:
    """A rule for the machine's ends, a queue, its dead-letter queue, and a function."""
    sends = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["Queue", "Arn"]},
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["FAILED", "TIMED_OUT", "ABORTED"],
            "stateMachineArn": [machine],
        },
    }
    return {
        "Letters": resource(
            "SQS::Queue", SqsManagedSseEnabled=True, MessageRetentionPeriod=1_209_600
        ),
        "Queue": resource(
            "SQS::Queue",
            SqsManagedSseEnabled=True,
            VisibilityTimeout=120,
            RedrivePolicy={
                "deadLetterTargetArn": {"Fn::GetAtt": ["Letters", "Arn"]},
                "maxReceiveCount": 5,
            },
        ),
        "Policy": resource(
            "SQS::QueuePolicy",
            Queues=[{"Ref": "Queue"}],
            PolicyDocument={"Version": "2012-10-17", "Statement": [sends]},
        ),
        "Rule": resource(
            "Events::Rule",
            EventPattern=pattern,
            Targets=[
                {
                    "Id": "Queue",
                    "Arn": {"Fn::GetAtt": ["Queue", "Arn"]},
                    "DeadLetterConfig": {"Arn": {"Fn::GetAtt": ["Letters", "Arn"]}},
                    "RetryPolicy": {"MaximumRetryAttempts": 3},
                }
            ],
        ),
        "Function": resource(
            "Lambda::Function",
            Runtime="python3.13",
            Handler="index.handler",
            Role=ROLE_ARN,
            Timeout=20,
            Code={"ZipFile": SOURCE},
            Environment={"Variables": {"NOTES": notes}},
        ),
        "Mapping": resource(
            "Lambda::EventSourceMapping",
            BatchSize=10,
            EventSourceArn={"Fn::GetAtt": ["Queue", "Arn"]},
            FunctionName={"Ref": "Function"},
            FunctionResponseTypes=["ReportBatchItemFailures"],
        ),
    }


def resource(kind: str, **properties: object) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def deploy(bench: Workbench, stack: str, resources: dict[str, Any]) -> dict[str, str]:
    """Create a stack; logical id -> physical id."""
    cloudformation = bench.aws.client("cloudformation")
    body = json.dumps({"Resources": resources})
    cloudformation.create_stack(StackName=stack, TemplateBody=body)
    settings = {"Delay": 0.05, "MaxAttempts": 1200}
    cloudformation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig=settings)
    found = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    return {item["LogicalResourceId"]: item["PhysicalResourceId"] for item in found}


def test_the_end_of_a_watched_execution_reaches_the_function(corrected: Workbench) -> None:
    notes = corrected.aws.home / "ends"
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    watched, other = corrected.machine(fails), corrected.machine(fails)
    ids = deploy(corrected, "reaping", template(watched, str(notes)))
    for machine in (other, watched):
        started = corrected.workflows.start_execution(stateMachineArn=machine, input='{"a": 1}')
        ended = corrected.wait(started["executionArn"])
    detail = the_only_line(notes)
    described = corrected.workflows.describe_execution(executionArn=ended.arn)
    assert {name: value for name, value in detail.items() if value is not None} == {
        "executionArn": ended.arn,
        "stateMachineArn": watched,
        "name": ended.arn.rsplit(":", 1)[-1],
        "status": "FAILED",
        "startDate": round(described["startDate"].timestamp() * 1000),
        "stopDate": round(described["stopDate"].timestamp() * 1000),
        "input": '{"a": 1}',
        "inputDetails": {"included": True},
        "redriveCount": 0,
        "redriveStatus": "REDRIVABLE",
        "redriveStatusReason": "Execution is FAILED and is redrivable",
        "error": "E",
        "cause": "c",
    }
    assert attributes(corrected, ids["Queue"]) == {
        "VisibilityTimeout": "120",
        "MessageRetentionPeriod": "345600",
        "SqsManagedSseEnabled": "true",
        "maxReceiveCount": 5,
        "policy": "events.amazonaws.com",
    }
    assert attributes(corrected, ids["Letters"]) == {
        "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "1209600",
        "SqsManagedSseEnabled": "true",
    }


def the_only_line(notes: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (notes.exists() and notes.read_text()):
        time.sleep(0.01)
    (line,) = notes.read_text().splitlines()
    return dict(json.loads(line))


def attributes(bench: Workbench, queue_url: str) -> dict[str, Any]:
    found = bench.queues.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])
    plain = ("VisibilityTimeout", "MessageRetentionPeriod", "SqsManagedSseEnabled")
    shown: dict[str, Any] = {name: found["Attributes"][name] for name in plain}
    if "RedrivePolicy" in found["Attributes"]:
        policy = json.loads(found["Attributes"]["RedrivePolicy"])
        shown["maxReceiveCount"] = policy["maxReceiveCount"]
    if "Policy" in found["Attributes"]:
        (statement,) = json.loads(found["Attributes"]["Policy"])["Statement"]
        shown["policy"] = statement["Principal"]["Service"]
    return shown
