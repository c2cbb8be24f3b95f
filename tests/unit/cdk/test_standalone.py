"""`fairlock asl`: a guarded state machine as JSON, with the states that the CDK's guard makes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from fairlock.cdk.guard.standalone import FUNCTIONS, WAYS_TO_WAIT, guarded_machine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.conftest import Asl
from tests.unit.cdk.guard_forms import FUNCTION, Cases, Form
from tests.unit.cdk.template import Scope, definition_of, happy_path, ways_out_unreleased

Json = dict[str, Any]
ARNS = {name: f"{FUNCTION}:{name.removesuffix('FunctionArn').lower()}" for name in FUNCTIONS}
CHAIN = {
    "QueryLanguage": "JSONata",
    "TimeoutSeconds": 3600,
    "StartAt": "Known?",
    "States": {
        "Known?": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $exists($states.input.id) %}", "Next": "Charge"}],
            "Default": "Unknown",
        },
        "Unknown": {"Type": "Fail", "Error": "Unknown"},
        "Charge": {"Type": "Pass", "End": True},
    },
}
PASS = {"Type": "Pass"}


def one(state: Json) -> Json:
    return {"StartAt": "In", "States": {"In": state}}


def machine(work: object, **options: Any) -> Json:  # noqa: ANN401 - those of a guarded machine
    given = {
        "functions": ARNS,
        "lock_name": "{% 'customer/' & $states.input.customer %}",
        **options,
    }
    return guarded_machine(work, **given)


@pytest.mark.parametrize("way", WAYS_TO_WAIT)
def test_a_task_gets_the_states_of_the_cdks_guard(way: str) -> None:
    """Of one in an app, its variable named as in a machine by itself."""
    waiting = WAYS_TO_WAIT[way]
    expected = definition_of(Form(Cases(App(), "ByTheCdk"), way, waiting=waiting).guard()).states
    for state in expected.values():
        if "Resource" in state:
            state["Resource"] = state["Resource"].replace("<AWS::Partition>", "aws")
    task = {k: v for k, v in expected["Charge"].items() if k not in {"Next", "Catch"}}
    work = {"StartAt": "Charge", "States": {"Charge": {**task, "End": True}}}
    made = machine(work, waiting=waiting)["States"]
    assert without_variable(made) == without_variable(expected)


def without_variable(states: Mapping[str, Json]) -> Json:
    return dict(json.loads(re.sub(r"lock_Guard_[0-9a-f]{8}", "lock", json.dumps(states))))


@pytest.mark.parametrize("keep_alive_seconds", [None, 20])
@pytest.mark.parametrize("work", [CHAIN, PASS, {"Type": "Map", "ItemProcessor": CHAIN}])
def test_every_path_releases(work: Json, keep_alive_seconds: int | None) -> None:
    states = machine(work, keep_alive_seconds=keep_alive_seconds)["States"]
    escaped = partial(ways_out_unreleased, Scope(states, "Guard: Enter"), "Guard: Acquire")
    assert escaped() == set()
    states["Guard: Work"]["Catch"][-1]["Next"] = "Guard: Failed"
    assert escaped() == {"Guard: Failed"}


def test_a_machine_or_a_task_beside_a_heartbeat_runs_in_a_branch() -> None:
    made = machine(CHAIN)
    assert (made["QueryLanguage"], made["TimeoutSeconds"]) == ("JSONata", 3600)
    [branch] = made["States"]["Guard: Work"]["Branches"]
    assert branch == {"StartAt": "Known?", "States": CHAIN["States"]}
    [variable] = made["States"]["Guard: Enter"]["Assign"]
    assert made["Comment"].endswith(f"${variable}.fencing_token")
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke"}
    made = machine(task, keep_alive_seconds=20)
    body, heartbeat = made["States"]["Guard: Work"]["Branches"]
    assert body["StartAt"] == "Work"
    assert body["States"]["Work"] == {**task, "Next": "Guard: Release"}
    assert "Guard: Heartbeat" in heartbeat["States"]


UNGUARDABLE: dict[str, list[object]] = {
    "must be a state, with its Type, or a machine": [{}, [PASS], {"StartAt": "A", "States": {}}],
    "must have an object with States": [
        {"StartAt": "A", "States": {"A": 5}},
        {"Type": "Map", "ItemProcessor": 5},
        {"Type": "Parallel", "Branches": [{}]},
    ],
    r"must not lead to other states: .* \(got 'Next'\)": [{**PASS, "Next": "B"}],
    "must not lead to other states": [{"Type": "Task", "Catch": []}],
    r"must have a Resource in each Task .* \(got 'the state Work'\)$": [{"Type": "Task"}],
    r"must have a Resource in each Task state, such as .* \(got 'the state In'\)$": [
        {"Type": "Map", "ItemProcessor": one({"Type": "Task", "End": True})},
    ],
    r"must lead to states of the same .* \(got 'In -> Guard: Release'\)$": [
        one({**PASS, "Next": "Guard: Release"}),
    ],
    r"must lead to states of the same .* \(got 'StartAt -> Work'\)$": [
        {"Type": "Map", "ItemProcessor": {**one(PASS), "StartAt": "Work"}},
    ],
    r"must have lists of objects as Catch and Choices \(got": [one({**PASS, "Catch": 5})],
    "must have other names for its states than the guard": [
        {"StartAt": "Guard: Enter", "States": {"Guard: Enter": {**PASS, "End": True}}},
    ],
}


def test_a_work_that_cannot_be_guarded_is_refused() -> None:
    for rule, works in UNGUARDABLE.items():
        for work in works:
            with pytest.raises(InvalidRequest, match=f"^task: {rule}"):
                machine(work)


TOKEN = "$lock_Guard_f7e104ba.fencing_token"
OTHER_TOKEN = TOKEN.replace("f7e104ba", "00000000")


def test_the_work_reads_its_fencing_token_where_it_is_evaluated_and_comments_are_free() -> None:
    """The rules of that are in test_guard_shape.py."""
    right: list[Json] = [{"Parameters": {"token.$": TOKEN}}, {"Comment": OTHER_TOKEN}]
    for state in right:
        [branch] = machine({**PASS, **state})["States"]["Guard: Work"]["Branches"]
        assert branch["States"]["Work"].items() >= state.items()
    for wrong in ({"token": TOKEN}, {"token.$": OTHER_TOKEN}):
        body = one({**PASS, "Parameters": wrong})
        with pytest.raises(InvalidRequest, match=r"^task: must read .* \(got 'the state In'\)$"):
            machine({"Type": "Map", "ItemProcessor": body})


def test_a_guarded_machine_may_be_guarded_by_another_lock_and_ask_for_the_newest() -> None:
    inner = machine({**PASS, "Parameters": {"token.$": TOKEN}})
    made = machine(inner, name="Outer", lock_name="all", only_newest="{% $states.input.build %}")
    [branch] = made["States"]["Outer: Work"]["Branches"]
    assert branch == {"StartAt": inner["StartAt"], "States": inner["States"]}
    assert made["States"]["Outer: Newer granted"]["Error"] == "Superseded"


def test_children_of_a_distributed_map_do_not_see_the_fencing_token() -> None:
    body = one({**PASS, "Parameters": {"token.$": TOKEN}})
    machine({"Type": "Map", "ItemProcessor": body})
    body["ProcessorConfig"] = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    with pytest.raises(InvalidRequest, match=r"by its ItemSelector .*the state In"):
        machine({"Type": "Map", "ItemProcessor": body})


def test_the_command_prints_placeholders_and_nothing_else_that_looks_like_one(asl: Asl) -> None:
    """They are what DefinitionSubstitutions of SAM and templatefile of Terraform replace."""
    task = json.dumps({"Type": "Task", "Resource": "${ChargeFunctionArn}"})
    status, output, _ = asl(task, "--lock-name", "$.customer", "--keep-alive", "20")
    assert status == 0
    assert set(re.findall(r"\$\{(\w*)", output)) == {*FUNCTIONS, "ChargeFunctionArn"}
    assert "%{" not in output  # a directive of Terraform
    printed = json.loads(output)
    path = happy_path(Scope(printed["States"], printed["StartAt"]))
    assert path[:4] == ["Guard: Enter", "Guard: Acquire", "Guard: Work", "Work"]
    [lock] = printed["States"]["Guard: Enter"]["Assign"].values()
    assert lock["lock_name"] == "{% $states.input.customer %}"


def test_the_command_tells_what_is_wrong(asl: Asl) -> None:
    for task, words, told in (
        (None, (), "--task: must be a file"),
        ("{", (), "--task: must be a file with JSON"),
        ('{"Type": "Pass"}', ("--limit", "0"), "limit: must be a whole number from 1 to 100"),
    ):
        status, _, errors = asl(task, "--lock-name", "x", *words)
        assert (status, told in errors) == (64, True)


def test_the_command_names_what_is_missing(
    asl: Asl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patches:
        patches.setenv("PATH", str(tmp_path))
        status, _, errors = asl('{"Type": "Pass"}', "--lock-name", "x")
    assert (status, "asl needs Node.js" in errors) == (64, True)
    for name in [name for name in sys.modules if name.startswith("fairlock.cdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "constructs", None)
    status, _, errors = asl('{"Type": "Pass"}', "--lock-name", "x")
    assert (status, "from its repository with the extra 'cdk'" in errors) == (64, True)


# The examples for SAM and Terraform: the machine is up to date, each placeholder is filled.

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "other_tools"
PRINTED = (EXAMPLES / "billing.asl.json").read_text()
PLACEHOLDERS = set(re.findall(r"\$\{(\w*)", PRINTED))


def test_the_machine_is_what_the_command_prints_and_its_task_gets_its_token() -> None:
    made = guarded_machine(
        json.loads((EXAMPLES / "charge.task.json").read_text()),
        functions={name: f"${{{name}}}" for name in FUNCTIONS},
        lock_name="{% 'customer/' & $states.input.customer_id %}",
        name="OneChargePerCustomer",
    )
    assert json.loads(PRINTED) == made
    [variable] = made["States"]["OneChargePerCustomer: Enter"]["Assign"]
    token = made["States"]["Work"]["Arguments"]["Payload"]["fencing_token"]
    assert token == f"{{% ${variable}.fencing_token %}}"


def test_each_placeholder_is_filled() -> None:
    for file, substitutions in (
        ("sam/template.yaml", r"DefinitionSubstitutions:\n((?: {8}\w+: .*\n)+)"),
        ("terraform/billing.tf", r"  functions = \{\n((?: {4}\w+ += .*\n)+)"),
    ):
        found = re.search(substitutions, (EXAMPLES / file).read_text())
        assert found is not None
        assert set(re.findall(r"^ +(\w+)", found[1], re.MULTILINE)) == PLACEHOLDERS


def test_cfn_lint_accepts_the_template_of_sam() -> None:
    """The control is in test_least_privilege.py."""
    from cfnlint import api  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; a second to import

    template = (EXAMPLES / "sam" / "template.yaml").read_text()
    assert api.lint(template, regions=["us-east-1"]) == []
