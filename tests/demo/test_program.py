"""What the program prints, writes and answers."""

import itertools
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Match, Template
from rich.console import Console

from examples.demo import shell_lines
from examples.demo.__main__ import report
from examples.demo.checks import (
    Check,
    all_finished,
    no_two_holders,
    no_update_lost,
    overlaps_were_found,
    tasks_got_their_token,
    they_contended,
    tokens_rise,
    updates_were_lost,
)
from examples.demo.console import Narrator, phase
from examples.demo.facts import Account, Execution, Mode, Role, Run, Story
from examples.demo.runner import DemoFailed, Deployed, Runner, Started
from fairlock.cdk import LockService
from infra.demo_stack import DemoStack
from tests.demo.builders import guarded_execution, queued, turn_taking

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
    return Narrator(Console(file=StringIO(), width=80, highlight=False))


def printed(narrator: Narrator) -> str:
    assert isinstance(narrator.console.file, StringIO)
    return narrator.console.file.getvalue()


def test_a_good_story_is_written_down_and_has_no_failures(
    story: Story, narrator: Narrator, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "demo"
    assert report(story, narrator, output) == 0
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


def test_every_failed_check_is_counted_and_printed(
    story: Story, narrator: Narrator, tmp_path: Path
) -> None:
    unrenamed = replace(story.failed.broken, error="States.TaskFailed")
    bad = replace(story, failed=replace(story.failed, broken=unrenamed))
    assert report(bad, narrator, tmp_path) == 1
    assert printed(narrator).count("✗ FAILED:") == 1


def test_an_execution_waits_is_inside_or_done() -> None:
    whole = guarded_execution()
    running = replace(whole, status="RUNNING")
    assert phase(whole) == "done"
    assert phase(running) == "inside"
    assert phase(replace(running, calls=())) == "waiting"


def test_the_lines_to_paste_are_shell_words_and_json() -> None:
    deployed = Deployed.from_outputs(OUTPUTS)
    environment = dict.fromkeys(shell_lines.EXPORTED, "test")
    text = shell_lines.lines(deployed, "http://127.0.0.1:4566", environment)
    words = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert [w for w in words if w[:1] == ["export"]] == [
        *(["export", f"{name}=test"] for name in shell_lines.EXPORTED),
        ["export", "AWS_PAGER="],
        ["export", "AWS_ENDPOINT_URL=http://127.0.0.1:4566"],
        ["export", "FAIRLOCK_TABLE_NAME=locks"],
    ]
    parsed = [w[1] for w in words if w[:1] == [".venv/bin/fairlock"]]
    assert parsed == ["ls", "run"]
    calls: list[dict[str, Any]] = []
    for line in (w for w in words if "aws" in w):
        flags = dict(itertools.pairwise(line))
        assert flags["--endpoint-url"] == "http://127.0.0.1:4566"
        body = flags.get("echo") or flags.get("--input") or "{}"
        target = flags.get("--function-name") or flags["--state-machine-arn"]
        calls.append({"to": target, **json.loads(body)})
    owner = {"lock_name": "nightly-report", "owner_id": shell_lines.OWNER_ID}
    assert calls == [
        {"to": "acquire-fn", **owner, "lease_seconds": 300},
        {"to": "release-fn", **owner},
        {"to": "arn:guarded", "account_id": "alice", "amount": 10, "work_seconds": 5},
        {"to": "arn:guarded"},
        {"to": "arn:polling", "account_id": "alice", "amount": 10, "work_seconds": 5},
        {"to": "arn:polling"},
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


# Every check passes on facts as they should be and fails on bent ones, and on none at all.

RUN_CHECKS: list[Callable[[Run], Check]] = [
    all_finished,
    they_contended,
    no_update_lost,
    tasks_got_their_token,
    lambda run: no_two_holders(run.executions),
    lambda run: tokens_rise(run.executions),
]
BOTH_KINDS = [*RUN_CHECKS, updates_were_lost, overlaps_were_found]


@pytest.mark.parametrize("check", RUN_CHECKS)
def test_a_run_that_takes_turns_passes(
    check: Callable[[Run], Check], polling_run: Run, queue_run: Run
) -> None:
    assert check(polling_run).passed
    assert check(queue_run).passed


@pytest.mark.parametrize("check", BOTH_KINDS)
def test_an_empty_record_fails(check: Callable[[Run], Check]) -> None:
    empty = Run(title="Nothing ran", mode=Mode.QUEUE, executions=(), accounts=())
    assert not check(empty).passed


@pytest.mark.parametrize("check", BOTH_KINDS)
def test_executions_that_did_nothing_fail(check: Callable[[Run], Check]) -> None:
    idle = replace(guarded_execution(), calls=(), status="RUNNING")
    account = Account(account_id="alice", opening=1000, closing=1000, last_change="opening")
    run = Run(title="Nothing done", mode=Mode.QUEUE, executions=(idle,), accounts=(account,))
    assert not check(run).passed


def test_one_execution_that_did_not_finish_fails(polling_run: Run) -> None:
    first, *others = polling_run.executions
    run = replace(polling_run, executions=(replace(first, status="FAILED"), *others))
    assert all_finished(run) == Check(
        claim="every execution finished its work", passed=False, evidence="5 of 6 succeeded"
    )


def test_an_unguarded_run_that_lost_something_is_evidence(unguarded_run: Run) -> None:
    assert updates_were_lost(unguarded_run) == Check(
        claim="without the guard, updates are lost, as expected",
        passed=True,
        evidence="1 of 2 (alice 1)",
    )
    assert overlaps_were_found(unguarded_run).passed


def test_an_unguarded_run_that_lost_nothing_is_no_evidence_and_fails(polling_run: Run) -> None:
    check = updates_were_lost(replace(polling_run, mode=Mode.BARE))
    assert not check.passed
    assert "no evidence" in check.evidence
    assert not overlaps_were_found(polling_run).passed


def test_a_lost_update_fails(unguarded_run: Run) -> None:
    check = no_update_lost(unguarded_run)
    assert (check.passed, check.evidence) == (False, "alice 980 (expected 970)")


def test_one_account_that_no_one_charged_fails(polling_run: Run) -> None:
    untouched = Account(account_id="zoe", opening=1000, closing=1000, last_change="opening")
    run = replace(polling_run, accounts=(*polling_run.accounts, untouched))
    assert not no_update_lost(run).passed


@pytest.mark.parametrize(("granted_ms", "passed"), [(1_100, True), (1_099, False)])
def test_entering_a_millisecond_before_the_holder_lets_go_fails(
    granted_ms: int, *, passed: bool
) -> None:
    holder = guarded_execution("first", granted_ms=100, released_ms=1_100)
    newcomer = guarded_execution("second", granted_ms=granted_ms, released_ms=3_000)
    check = no_two_holders([newcomer, holder])
    assert check.passed is passed
    if not passed:
        assert check.evidence == "2 holds checked, 1 overlaps (worst: first and second, 0.001 s)"


def test_an_overlap_hidden_behind_a_short_hold_is_found() -> None:
    long_hold = guarded_execution("long", granted_ms=0, released_ms=10_000)
    short_hold = guarded_execution("short", granted_ms=1_000, released_ms=2_000)
    late = guarded_execution("late", granted_ms=5_000, released_ms=6_000)
    assert "2 overlaps" in no_two_holders([long_hold, short_hold, late]).evidence


def test_holders_of_different_locks_may_overlap() -> None:
    both = [guarded_execution("a-1", "alice"), guarded_execution("b-1", "bob")]
    assert no_two_holders(both).passed


@pytest.mark.parametrize("later_token", [7, 6])
def test_a_token_that_falls_or_repeats_fails(later_token: int) -> None:
    earlier = guarded_execution("first", token=7, granted_ms=100)
    later = guarded_execution("second", token=later_token, granted_ms=2_000, released_ms=3_000)
    assert not tokens_rise([later, earlier]).passed


def test_a_single_token_per_lock_shows_no_rise() -> None:
    assert not tokens_rise([guarded_execution()]).passed


def test_a_task_with_another_grants_token_fails(polling_run: Run) -> None:
    first, second, *others = polling_run.executions
    swapped = replace(first, calls=(*first.calls[:-2], second.calls[-2], first.calls[-1]))
    run = replace(polling_run, executions=(swapped, second, *others))
    assert tasks_got_their_token(run).evidence == "5 of 6"
    assert not tasks_got_their_token(run).passed


@pytest.mark.parametrize(
    ("asked_ms", "passed"), [(1_099, True), (1_100, False)], ids=["before it left", "after"]
)
def test_only_who_asked_while_another_was_inside_has_contended(
    asked_ms: int, *, passed: bool
) -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    second = guarded_execution("a-2", asked_ms=asked_ms, granted_ms=1_150, released_ms=2_000)
    run = Run(title="Two", mode=Mode.QUEUE, executions=(first, queued(second)), accounts=())
    assert they_contended(run).passed is passed


def test_one_lock_on_which_no_one_had_to_wait_fails(queue_run: Run) -> None:
    alone = guarded_execution("zoe-1", "zoe")
    run = replace(queue_run, executions=(*queue_run.executions, alone))
    assert they_contended(run) == Check(
        claim="they really contended",
        passed=False,
        evidence="4 of 7 had to wait for another to leave, on 2 of 3 locks",
    )


def test_a_run_in_which_no_one_had_to_wait_fails() -> None:
    alone: tuple[Execution, ...] = tuple(turn_taking(count=1))
    run = Run(title="Alone", mode=Mode.POLLING, executions=alone, accounts=())
    assert not they_contended(run).passed


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


def states(template: Template, output: str) -> list[dict[str, Any]]:
    return list(definition(template, output)["States"].values())


def charges(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        state
        for state in machine["States"].values()
        if "ChargeFunction" in json.dumps(state.get("Arguments", {}))
    ]


GUARDED = ("GuardedStateMachineArn", "PollingStateMachineArn")
ALL = ("UnguardedStateMachineArn", *GUARDED)


@pytest.mark.parametrize("output", GUARDED)
def test_every_workflow_runs_the_same_task_and_the_guarded_ones_pass_their_token(
    template: Template, output: str
) -> None:
    (bare,) = charges(definition(template, "UnguardedStateMachineArn"))
    (guarded,) = charges(definition(template, output))
    token = guarded["Arguments"]["Payload"].pop("fencing_token")
    assert token.endswith(".fencing_token %}")
    assert bare["Arguments"] == guarded["Arguments"]
    assert bare["Output"] == guarded["Output"] == "{% $states.result.Payload %}"


def test_only_the_guarded_workflows_ask_for_a_lock_and_for_the_same_one(
    template: Template,
) -> None:
    assert len(definition(template, "UnguardedStateMachineArn")["States"]) == 1
    for output in GUARDED:
        guarded = json.dumps(definition(template, output))
        assert "'account/' & $lock_name_part($states.input.account_id, " in guarded


def test_one_guard_sleeps_on_a_task_token_and_the_other_polls(template: Template) -> None:
    resources = {
        output: {
            str(state.get("Resource")).rsplit(".", 1)[-1] for state in states(template, output)
        }
        for output in GUARDED
    }
    sleeping = [output for output in GUARDED if "waitForTaskToken" in resources[output]]
    assert sleeping == ["GuardedStateMachineArn"]


def test_who_waits_in_the_queue_asks_again_as_often_as_the_output_says(
    template: Template,
) -> None:
    timeouts = [
        state["TimeoutSeconds"]
        for state in states(template, "GuardedStateMachineArn")
        if "waitForTaskToken" in str(state.get("Resource"))
    ]
    fallback = int(template.to_json()["Outputs"]["FallbackSeconds"]["Value"])
    assert timeouts
    assert all(fallback // 2 < timeout <= fallback for timeout in timeouts)


@pytest.mark.parametrize("output", ALL)
def test_a_charge_is_never_repeated(template: Template, output: str) -> None:
    (charge,) = charges(definition(template, output))
    assert "Retry" not in charge


def test_the_task_may_read_and_put_account_rows_and_write_its_log(template: Template) -> None:
    (role,) = template.find_resources("AWS::Lambda::Function").values()
    role_id = role["Properties"]["Role"]["Fn::GetAtt"][0]
    policies = template.find_resources(
        "AWS::IAM::Policy", {"Properties": {"Roles": [{"Ref": role_id}]}}
    )
    (policy,) = policies.values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    assert [(s["Action"], next(iter(s["Resource"]))) for s in statements] == [
        (["logs:CreateLogStream", "logs:PutLogEvents"], "Fn::GetAtt"),
        (["dynamodb:GetItem", "dynamodb:PutItem"], "Fn::GetAtt"),
    ]
    assert "ManagedPolicyArns" not in template.to_json()["Resources"][role_id]["Properties"]


def test_nothing_is_left_behind_when_the_stack_goes(template: Template) -> None:
    resources = template.to_json()["Resources"].values()
    assert {r.get("DeletionPolicy", "Delete") for r in resources} == {"Delete"}


def test_the_outputs_are_what_the_program_reads(template: Template) -> None:
    assert set(template.to_json()["Outputs"]) == {
        "AccountsTableName",
        "ChargeFunctionName",
        "UnguardedStateMachineArn",
        "GuardedStateMachineArn",
        "PollingStateMachineArn",
        "LeaseSeconds",
        "FallbackSeconds",
    }
    template.has_output("LeaseSeconds", {"Value": Match.exact("10")})
    template.has_output("FallbackSeconds", {"Value": Match.exact("10")})
