"""What the program prints, writes and answers; its task and its template."""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import create_autospec

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Match, Template
from rich.console import Console

from examples.demo import shell_lines
from examples.demo.__main__ import report
from examples.demo.console import Narrator
from examples.demo.facts import Role
from examples.demo.runner import DemoFailed, Deployed, Runner, Started
from examples.demo.task.charge import charge
from fairlock.cdk import LockService
from infra.demo_stack import DemoStack
from tests.demo.builders import STORY, guarded_execution

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OUTPUTS = {
    "Fairlock": {
        "AcquireFunctionName": "acquire-fn",
        "LockTableName": "locks",
        "ReleaseFunctionName": "release-fn",
    },
    "FairlockDemo": {
        "AccountsTableName": "accounts",
        "ChargeFunctionName": "charge-fn",
        "UnguardedStateMachineArn": "arn:unguarded",
        "GuardedStateMachineArn": "arn:guarded",
        "PollingStateMachineArn": "arn:polling",
        "LeaseSeconds": "6",
        "FallbackSeconds": "10",
    },
}


@pytest.fixture
def narrator() -> Narrator:
    return Narrator(Console(file=StringIO(), width=80, highlight=False, color_system=None))


def printed(narrator: Narrator) -> str:
    assert isinstance(narrator.console.file, StringIO)
    return narrator.console.file.getvalue()


def test_a_good_story_is_written_and_has_no_failures(narrator: Narrator, tmp_path: Path) -> None:
    output = tmp_path / "out" / "demo"
    assert report(STORY, narrator, output) == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "index.html",
        "picture.png",
        "picture.svg",
    ]
    text = printed(narrator)
    assert (output / "index.html").as_uri() in text
    assert "1700000000000002" in text
    assert "FAILED:" not in text
    assert max(len(line) for line in text.splitlines() if "170000" in line) <= 80


def test_every_failed_check_is_counted_and_printed(narrator: Narrator, tmp_path: Path) -> None:
    unrenamed = replace(STORY.failed.broken, error="States.TaskFailed")
    bad = replace(STORY, failed=replace(STORY.failed, broken=unrenamed))
    assert report(bad, narrator, tmp_path) == 1
    assert printed(narrator).count("✗ FAILED:") == 1


def test_the_lines_to_paste_are_shell_words_and_json() -> None:
    deployed = Deployed.from_outputs(OUTPUTS)
    environment = dict.fromkeys(shell_lines.EXPORTED, "test")
    text = shell_lines.lines(deployed, "http://127.0.0.1:4566", environment)
    words = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert [w[1] for w in words if w[:1] == ["export"]] == [
        *(f"{name}=test" for name in shell_lines.EXPORTED),
        "AWS_PAGER=",
        "AWS_ENDPOINT_URL=http://127.0.0.1:4566",
        "FAIRLOCK_TABLE_NAME=locks",
    ]
    assert [w[1] for w in words if w[:1] == [".venv/bin/fairlock"]] == ["ls", "run"]
    calls = []
    for line in (w for w in words if "aws" in w):
        flags = dict(itertools.pairwise(line))
        assert flags["--endpoint-url"] == "http://127.0.0.1:4566"
        body = json.loads(flags.get("echo") or flags.get("--input") or "{}")
        calls.append((flags.get("--function-name") or flags["--state-machine-arn"], body))
    owner = {"lock_name": "nightly-report", "owner_id": shell_lines.OWNER_ID}
    charged = {"account_id": "alice", "amount": 10, "work_seconds": 5}
    assert calls == [
        ("acquire-fn", {**owner, "lease_seconds": 300}),
        ("release-fn", owner),
        *[("arn:guarded", charged), ("arn:guarded", {})],
        *[("arn:polling", charged), ("arn:polling", {})],
    ]


def test_waiting_in_vain_is_an_error_that_names_the_execution_and_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = Runner(
        create_autospec(object), create_autospec(object), Deployed.from_outputs(OUTPUTS)
    )
    stuck = replace(
        guarded_execution("alice-1"),
        calls=tuple(
            replace(call, error="LockStoreUnavailable") for call in guarded_execution().calls
        ),
    )
    monkeypatch.setattr(runner, "facts", lambda _started: stuck)
    batch = [Started(arn="arn:1", name="alice-1", account_id="alice", roles={"S": Role.ACQUIRE})]
    with pytest.raises(DemoFailed) as failure:
        runner.watch(batch, lambda _: False, within_seconds=0)
    assert str(failure.value) == (
        "waited 0 s in vain for alice-1; their calls failed with LockStoreUnavailable"
    )


# The demo's task loses updates when two run at once; that is what makes it worth guarding.

TABLE = "accounts"
KEY = {"account_id": {"S": "alice"}}


@pytest.fixture
def accounts(dynamodb: DynamoDBClient) -> DynamoDBClient:
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account_id", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=TABLE, Item=row("1000", "opening"))
    return dynamodb


def row(balance: str, last_change: str) -> dict[str, Any]:
    return {**KEY, "balance": {"N": balance}, "last_change": {"S": last_change}}


def event(charge_id: str, amount: int, **more: object) -> dict[str, Any]:
    charge = {"charge_id": charge_id, "account_id": "alice", "amount": amount, "work_seconds": 0}
    return {**charge, **more}


def test_a_charge_in_the_middle_of_another_is_lost_and_each_says_what_it_read_and_wrote(
    accounts: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_charge_meanwhile(_seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", lambda _seconds: None)
        charge(event("a-2", 50), accounts, TABLE)

    monkeypatch.setattr(time, "sleep", another_charge_meanwhile)
    answer = charge(event("a-1", 30, fencing_token=7), accounts, TABLE)
    assert accounts.get_item(TableName=TABLE, Key=KEY)["Item"] == row("970", "a-1")
    times = [answer.pop(name) for name in ("started_at_ms", "read_at_ms", "written_at_ms")]
    assert times == sorted(times)
    assert answer == {
        "charge_id": "a-1",
        "account_id": "alice",
        "amount": 30,
        "fencing_token": 7,
        "balance_read": 1000,
        "change_read": "opening",
        "balance_written": 970,
    }


# The demo's template: the same task bare and in both guards, with no right too many.


@pytest.fixture(scope="module")
def template() -> Template:
    app = App()
    locks = LockService(Stack(app, "Fairlock"), "Locks")
    return Template.from_stack(DemoStack(app, "FairlockDemo", locks=locks))


def definition(template: Template, output: str) -> dict[str, Any]:
    """The definition of the machine that an output refers to."""
    found = template.to_json()
    resource = found["Resources"][found["Outputs"][output]["Value"]["Ref"]]
    pieces = resource["Properties"]["DefinitionString"]["Fn::Join"][1]
    text = "".join(p if isinstance(p, str) else "-".join(map(str, p.values())) for p in pieces)
    machine: dict[str, Any] = json.loads(text)
    return machine


def charge_of(machine: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [
        state
        for state in machine["States"].values()
        if "ChargeFunction" in json.dumps(state.get("Arguments", {}))
    ]
    assert "Retry" not in found, "a charge is never repeated"
    return found


@pytest.mark.parametrize(
    ("output", "sleeps"), [("GuardedStateMachineArn", True), ("PollingStateMachineArn", False)]
)
def test_the_guarded_workflows_run_the_same_task_under_the_lock_of_the_account(
    template: Template, output: str, *, sleeps: bool
) -> None:
    """One sleeps in the queue, the other polls; the task is given the token."""
    bare = charge_of(definition(template, "UnguardedStateMachineArn"))
    machine = definition(template, output)
    text, guarded = json.dumps(machine), charge_of(machine)
    assert "'account/' & $lock_name_part($states.input.account_id, " in text
    assert ("waitForTaskToken" in text) == sleeps
    assert guarded["Arguments"]["Payload"].pop("fencing_token").endswith(".fencing_token %}")
    assert bare["Arguments"] == guarded["Arguments"]
    assert bare["Output"] == guarded["Output"] == "{% $states.result.Payload %}"


def test_the_outputs_are_what_the_program_reads(template: Template) -> None:
    assert set(template.to_json()["Outputs"]) == set(OUTPUTS["FairlockDemo"])
    template.has_output("LeaseSeconds", {"Value": Match.exact("10")})
    template.has_output("FallbackSeconds", {"Value": Match.exact("10")})
