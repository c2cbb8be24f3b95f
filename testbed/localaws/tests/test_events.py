"""Corrections event_targets and undelivered_events, and the status events of executions."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from testbed.localaws import EmulatorError, LocalAws, corrections
from testbed.localaws.workbench import Queue, Workbench

WithoutCorrection = Callable[..., Workbench]

FAILS_ONCE = """
import boto3, os
def handler(event, context):
    answer = boto3.client('dynamodb').update_item(
        TableName=os.environ['TABLE'], Key={'pk': {'S': 'calls'}},
        UpdateExpression='ADD n :one', ExpressionAttributeValues={':one': {'N': '1'}},
        ReturnValues='UPDATED_NEW')
    if int(answer['Attributes']['n']['N']) < 2: raise RuntimeError('not yet')
"""


def calls_of_a_failing_target(bench: Workbench, *, patience_seconds: float) -> int:
    """How often a function was called that fails once, so long after its first call at most."""
    events, table = bench.aws.client("events"), bench.table()
    function = bench.function(FAILS_ONCE, Environment={"Variables": {"TABLE": table}}, Timeout=30)
    events.put_rule(Name=table, EventPattern=json.dumps({"source": [table]}))
    arn = bench.functions.get_function_configuration(FunctionName=function)["FunctionArn"]
    events.put_targets(Rule=table, Targets=[{"Id": "1", "Arn": arn}])
    events.put_events(Entries=[{"Source": table, "DetailType": "any", "Detail": "{}"}])
    assert wait_for_calls(bench, table, 1, seconds=30) == 1
    return wait_for_calls(bench, table, 2, seconds=patience_seconds)


def wait_for_calls(bench: Workbench, table: str, most: int, *, seconds: float) -> int:
    """The number of calls as soon as it is so high, or when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        item = bench.tables.get_item(TableName=table, Key={"pk": {"S": "calls"}}).get("Item")
        calls = int(item["n"]["N"]) if item else 0
        if calls >= most or time.monotonic() > deadline:
            return calls
        time.sleep(0.05)


def test_a_failing_target_function_is_tried_again(corrected: Workbench) -> None:
    assert calls_of_a_failing_target(corrected, patience_seconds=30) == 2


def test_control_a_failing_target_function_is_called_once(left_out: WithoutCorrection) -> None:
    """It would be tried again after a second."""
    assert calls_of_a_failing_target(left_out("event_targets"), patience_seconds=3) == 1


def queue_that_lets(
    bench: Workbench, rule: str, condition: Mapping[str, Mapping[str, str]] | None = None
) -> Queue:
    """A queue to which EventBridge may send what the rule selects, or what `condition` says."""
    rule_arn = f"arn:aws:events:us-east-1:000000000000:rule/{rule}"
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
        "Condition": condition or {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }
    only_tls = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "sqs:*",
        "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return bench.queue(Policy={"Version": "2012-10-17", "Statement": [statement, only_tls]})


def waits(seconds: int, **fields: object) -> dict[str, Any]:
    wait = {"Type": "Wait", "Seconds": seconds, "End": True}
    return {"StartAt": "W", "States": {"W": wait}, **fields}


FAILS = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}


@pytest.mark.parametrize(
    ("definition", "stop", "status"),
    [
        (waits(0), False, "SUCCEEDED"),
        (FAILS, False, "FAILED"),
        (waits(9), True, "ABORTED"),
        (waits(9, TimeoutSeconds=1), False, "TIMED_OUT"),
    ],
)
def test_every_end_of_an_execution_sends_one_event(
    corrected: Workbench,
    definition: dict[str, Any],
    stop: bool,  # noqa: FBT001 - a column of the table above
    status: str,
) -> None:
    events = corrected.aws.client("events")
    machine = corrected.machine(definition)
    name = machine.rsplit(":", 1)[-1]
    queue = queue_that_lets(corrected, name)
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "stateMachineArn": [machine],
            "status": ["SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"],
        },
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": queue.arn}])
    started = corrected.workflows.start_execution(stateMachineArn=machine, input="{}")
    for _ in range(2 if stop else 0):  # a second stop changes nothing and sends nothing
        corrected.workflows.stop_execution(executionArn=started["executionArn"])
    ended = corrected.wait(started["executionArn"])
    found = corrected.received(queue)
    details = [json.loads(message["Body"])["detail"] for message in found]
    assert ended.status == status
    assert [(detail["executionArn"], detail["status"]) for detail in details] == [
        (ended.arn, status)
    ]


def send_event(bench: Workbench, *targets: dict[str, Any]) -> tuple[str, Any]:
    """Send an event for which a new rule has these targets; the rule's ARN and the event's id."""
    events = bench.aws.client("events")
    name = f"rule-{time.monotonic_ns()}"
    arn = events.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))["RuleArn"]
    numbered = [{"Id": str(number), **target} for number, target in enumerate(targets)]
    events.put_targets(Rule=name, Targets=numbered)
    sent = events.put_events(Entries=[{"Source": name, "DetailType": "any", "Detail": "{}"}])
    return arn, sent["Entries"][0]["EventId"]


ACCOUNT = {"StringEquals": {"aws:SourceAccount": "000000000000"}}
OTHER_ACCOUNT = {"StringEquals": {"aws:SourceAccount": "111111111111"}}
OTHER_RULE = {"ArnEquals": {"aws:SourceArn": "arn:aws:events:us-east-1:000000000000:rule/other"}}


def queues_reached(bench: Workbench) -> list[bool]:
    """Which of four queues an event reaches: two refuse it, one has no policy, one lets it in."""
    queues = [queue_that_lets(bench, "", rule) for rule in (OTHER_ACCOUNT, OTHER_RULE)]
    queues += [bench.queue(), queue_that_lets(bench, "", ACCOUNT)]
    send_event(bench, *({"Arn": queue.arn} for queue in queues))
    return [bench.received(queue, seconds=0) != [] for queue in queues]


def test_an_event_reaches_only_queues_whose_policy_lets_it_in(corrected: Workbench) -> None:
    assert queues_reached(corrected) == [False, False, False, True]


def test_control_an_event_reaches_every_queue(left_out: WithoutCorrection) -> None:
    assert queues_reached(left_out("undelivered_events")) == [True, True, True, True]


def letters_of_undelivered_events(bench: Workbench) -> tuple[list[Any], list[Any]]:
    """What the dead-letter queue of three unreachable targets gets, and what it should get."""
    letters, silent = queue_that_lets(bench, "", ACCOUNT), bench.queue()
    errors = {
        silent.arn: "NO_PERMISSIONS",
        "arn:aws:sqs:us-east-1:000000000000:gone": "NO_RESOURCE",
        "arn:aws:lambda:us-east-1:000000000000:function:gone": "NO_RESOURCE",
    }
    rule, event = send_event(
        bench, *({"Arn": arn, "DeadLetterConfig": {"Arn": letters.arn}} for arn in errors)
    )
    found = []
    for message in bench.received(letters, seconds=0):
        labels = message.get("MessageAttributes", {}).items()
        values = {name: label["StringValue"] for name, label in labels}
        found.append((json.loads(message["Body"])["id"], values))
    expected = [
        (event, {"RULE_ARN": rule, "TARGET_ARN": target, "ERROR_CODE": error})
        for target, error in errors.items()
    ]
    return found, expected


def test_an_undelivered_event_goes_to_the_dead_letter_queue(corrected: Workbench) -> None:
    found, expected = letters_of_undelivered_events(corrected)
    assert found == expected


def test_control_an_undelivered_event_is_lost(left_out: WithoutCorrection) -> None:
    found, _ = letters_of_undelivered_events(left_out("undelivered_events"))
    assert found == []


def test_an_undelivered_event_without_dead_letter_queue_harms_no_one(corrected: Workbench) -> None:
    reached = queue_that_lets(corrected, "", ACCOUNT)
    silent = corrected.queue()
    send_event(
        corrected,
        {"Arn": silent.arn},
        {"Arn": silent.arn, "DeadLetterConfig": {"Arn": silent.arn}},
        {"Arn": reached.arn},
    )
    assert len(corrected.received(reached, seconds=0)) == 1
    assert corrected.received(silent, seconds=0) == []


# Starting and ending: loopback only, nothing left over, side by side, clear failures.


CHECKOUT = Path(__file__).resolve().parents[3]
LISTENING = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}

needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's /proc")


def group_members(group: int) -> list[int]:
    """Processes of a process group, zombies not counted."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = entry.read_text().rpartition(") ")
        except OSError:  # it ended while we looked
            continue
        state, _, its_group, *_ = rest.split()
        if int(its_group) == group and state != "Z":
            members.append(int(entry.parent.name))
    return members


def listening_addresses(process: int) -> set[str]:
    """Local addresses, in hexadecimal, on which a process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(str(descriptor.readlink()))
        except OSError:  # closed while we looked
            continue
    addresses = set()
    for protocol in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in inodes:
                addresses.add(fields[1].split(":")[0])
    return addresses


def start_worker(aws: LocalAws) -> None:
    bench = Workbench(aws)
    function = bench.function("def handler(event, context): return event\n")
    bench.functions.invoke(FunctionName=function, Payload="1")


@needs_proc
def test_nothing_listens_outside_loopback() -> None:
    with LocalAws() as aws:
        start_worker(aws)
        aws.client("stepfunctions").list_state_machines()
        aws.client("sqs").list_queues()
        processes = group_members(aws.pid)
        addresses = [listening_addresses(process) for process in processes]
    assert len(processes) == 2  # the emulator and one Lambda worker
    assert set().union(*addresses) <= LOOPBACK
    assert any(addresses)


@needs_proc
def test_control_a_listener_on_another_address_would_be_seen() -> None:
    with socket.create_server(("127.0.0.2", 0)):
        assert not listening_addresses(os.getpid()) <= LOOPBACK


@needs_proc
def test_nothing_is_left_after_the_block() -> None:
    with LocalAws() as aws:
        start_worker(aws)
        group, home = aws.pid, aws.home
        assert home.exists()
    assert group_members(group) == []
    assert not home.exists()


@needs_proc
def test_nothing_is_left_after_an_exception() -> None:
    seen: list[tuple[int, Path]] = []

    def fail_inside() -> None:
        with LocalAws() as aws:
            start_worker(aws)
            seen.append((aws.pid, aws.home))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    [(group, home)] = seen
    assert group_members(group) == []
    assert not home.exists()


PARENT = """
import os, sys, time
from testbed.localaws import LocalAws
with LocalAws() as aws:
    forked = os.fork() if 'forks' in sys.argv else 1
    if forked:
        print(aws.pid, aws.home, forked, flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A Python process and its output, which ends after a minute at the latest."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    at_last = threading.Timer(60, process.kill)
    at_last.start()
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            yield process, lines
    finally:
        at_last.cancel()
        process.kill()
        process.wait(timeout=10)


@needs_proc
@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "alone"),
        (signal.SIGTERM, "alone"),
        (signal.SIGINT, "alone"),
        (signal.SIGKILL, "forks"),
    ],
)
def test_nothing_is_left_when_the_parent_is_gone(number: signal.Signals, how: str) -> None:
    """Not even if a process that the parent forked lives on, and with it the parent's pipes."""
    with started("-c", PARENT, how) as (parent, lines):
        group, home, forked = lines.readline().split()
        parent.send_signal(number)
        parent.wait(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (group_members(int(group)) or Path(home).exists()):
            time.sleep(0.02)
        if how == "forks":
            os.kill(int(forked), signal.SIGKILL)
    assert group_members(int(group)) == []
    assert not Path(home).exists()


def test_two_instances_do_not_see_each_other(corrected: Workbench) -> None:
    with LocalAws() as aws:
        other = Workbench(aws)
        here, there = corrected.table(), other.table()
        assert there in aws.client("dynamodb").list_tables()["TableNames"]
        assert here not in aws.client("dynamodb").list_tables()["TableNames"]
        assert there not in corrected.tables.list_tables()["TableNames"]


def test_the_users_credentials_are_not_used(
    monkeypatch: pytest.MonkeyPatch, corrected: Workbench
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREALREALREALREAL")
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:8080")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:8080")
    identity = corrected.aws.client("sts").get_caller_identity()
    assert identity["Account"] == "000000000000"
    assert corrected.aws.environment["AWS_ACCESS_KEY_ID"] == corrected.aws.access_key
    assert corrected.aws.access_key.startswith("LOCALAWS")


def test_another_version_of_the_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.5.34")
    with pytest.raises(EmulatorError, match=r"ministack 1\.5\.33 is needed, found: 1\.5\.34"):
        LocalAws().__enter__()


def test_an_emulator_that_does_not_come_up_says_why() -> None:
    with pytest.raises(EmulatorError, match="could not convert string to float: 'soon'"):
        LocalAws(settings={"LOCALAWS_TTL_SECONDS": "soon"}).__enter__()


def test_an_unknown_correction_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no such correction: everything"):
        LocalAws(without=("everything",))


def test_every_correction_says_what_aws_does() -> None:
    folder = Path(corrections.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    assert modules == set(corrections.NAMES)
    for name in corrections.NAMES:
        text = (folder / f"{name}.py").read_text()
        assert all(f"\n{part}" in text for part in ("AWS", "Emulator: ", "This: ")), name


def test_the_readme_lists_every_correction() -> None:
    text = (Path(corrections.__file__).parents[1] / "README.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == corrections.NAMES


def test_used_outside_a_block_it_says_so() -> None:
    with pytest.raises(EmulatorError, match="use it in a `with` block"):
        _ = LocalAws().endpoint_url


def test_by_hand_it_prints_what_to_export_and_ends_on_ctrl_c() -> None:
    with started("-m", "testbed.localaws") as (running, lines):
        first, second = lines.readline(), lines.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 0
    assert first.startswith("# Embedded AWS at http://127.0.0.1:")
    assert second.startswith("export AWS_ENDPOINT_URL=http://127.0.0.1:")
