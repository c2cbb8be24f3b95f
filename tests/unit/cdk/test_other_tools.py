"""The examples for SAM and Terraform: the machine is up to date, each placeholder is filled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairlock.cdk.guard.standalone import FUNCTIONS, guarded_machine

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "other_tools"
PRINTED = (EXAMPLES / "billing.asl.json").read_text()
PLACEHOLDERS = set(re.findall(r"\$\{(\w*)", PRINTED))


def test_the_machine_is_what_the_command_of_the_document_prints() -> None:
    made = guarded_machine(
        json.loads((EXAMPLES / "charge.task.json").read_text()),
        functions={name: f"${{{name}}}" for name in FUNCTIONS},
        lock_name="{% 'customer/' & $states.input.customer_id %}",
        name="OneChargePerCustomer",
    )
    assert json.loads(PRINTED) == made


def test_its_task_is_given_the_fencing_token_of_its_guard() -> None:
    machine = json.loads(PRINTED)
    [variable] = machine["States"]["OneChargePerCustomer: Enter"]["Assign"]
    token = machine["States"]["Work"]["Arguments"]["Payload"]["fencing_token"]
    assert token == f"{{% ${variable}.fencing_token %}}"


@pytest.mark.parametrize(
    ("file", "substitutions"),
    [
        ("sam/template.yaml", r"DefinitionSubstitutions:\n((?: {8}\w+: .*\n)+)"),
        ("terraform/billing.tf", r"  functions = \{\n((?: {4}\w+ += .*\n)+)"),
    ],
)
def test_each_placeholder_is_filled(file: str, substitutions: str) -> None:
    found = re.search(substitutions, (EXAMPLES / file).read_text())
    assert found is not None
    assert set(re.findall(r"^ +(\w+)", found[1], re.MULTILINE)) == PLACEHOLDERS


def test_cfn_lint_accepts_the_template_of_sam() -> None:
    from cfnlint import api  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; a second to import

    template = (EXAMPLES / "sam" / "template.yaml").read_text()
    assert api.lint(template, regions=["us-east-1"]) == []
    broken = template.replace("Handler:", "Handlers:")
    assert api.lint(broken, regions=["us-east-1"]) != []
