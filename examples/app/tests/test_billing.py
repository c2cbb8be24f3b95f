"""The stack, as the CDK synthesizes it."""

from __future__ import annotations

import pytest
from aws_cdk import App
from aws_cdk.assertions import Match, Template
from billing import Billing


@pytest.fixture(scope="module")
def template() -> Template:
    return Template.from_stack(Billing(App(), "Billing"))


def test_the_machine_runs_its_task_under_the_customers_lock(template: Template) -> None:
    [machine] = template.find_resources("AWS::StepFunctions::StateMachine").values()
    definition = str(machine["Properties"]["DefinitionString"])
    assert "customer/" in definition
    assert "fencing_token" in definition


def test_scripts_find_the_lock_table_by_the_stacks_name(template: Template) -> None:
    template.has_resource_properties(
        "AWS::SSM::Parameter", Match.object_like({"Name": "/fairlock/Billing/LockTableName"})
    )
