"""Reads templates: resources of the service, items as Java spells them, findings of cfn-lint."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_

# Finds resources of the service in a template.

Json = dict[str, Any]


def resources(template: Json, kind: str) -> dict[str, Json]:
    return {name: r for name, r in template["Resources"].items() if r["Type"] == kind}


def one(template: Json, kind: str, prefix: str) -> tuple[str, Json]:
    """The one resource of a kind whose logical id begins so, and goes on with the hash."""
    [found] = [
        (name, resource)
        for name, resource in resources(template, kind).items()
        if name[:-8] == f"Locks{prefix}"
    ]
    return found


def arn(logical_id: str) -> Json:
    return {"Fn::GetAtt": [logical_id, "Arn"]}


# How Step Functions spells the types of an item: an independent translation.

SPELLED = {"BOOL": "Bool", "NULL": "Nul", "SS": "Ss", "NS": "Ns", "BS": "Bs"}


def as_java(item: Json) -> Json:
    """Of the types only, not of attributes of the same name."""
    return {name: _value_as_java(value) for name, value in item.items()}


def _value_as_java(value: Json) -> Json:
    [(kind, inner)] = value.items()
    if kind == "L":
        return {"L": [_value_as_java(element) for element in inner]}
    if kind == "M":
        return {"M": as_java(inner)}
    return {SPELLED.get(kind, kind): inner}


# What cfn-lint finds in a template.

SECONDS = re.compile(r'("(?:Timeout|Heartbeat)?Seconds"):"{%[^"]*%}"')
"""A number of seconds that a state machine computes."""


def lint(template: Json) -> list[str]:
    """What cfn-lint finds; the dependencies that CDK spells out twice are not of interest."""
    from cfnlint import api  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; a second to import
    from cfnlint.config import ManualArgs  # type: ignore[import-untyped]  # noqa: PLC0415 - same

    matches = api.lint(
        json.dumps(template),
        regions=["us-east-1"],
        config=ManualArgs(ignore_checks=["W3005"]),
    )
    return [f"{match.rule.id} {match.message}" for match in matches]


def durable_function(stack: Stack, name: str = "Billing") -> lambda_.Function:
    return lambda_.Function(
        stack,
        name,
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        durable_config=lambda_.DurableConfig(execution_timeout=Duration.days(7)),
    )


PARTITION, REGION, ACCOUNT = "aws-us-gov", "ap-southeast-2", "123456789012"
"""As long as they get, though this partition has no such region."""
FORMS: Final = {
    "AWS::Partition": PARTITION,
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "x" * 128,
}


def resolved(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A part of a template as CloudFormation sends it, each name as long as it gets."""
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["Ref"]:
        return FORMS.get(value["Ref"], "r" * 64)
    if list(value) == ["Fn::Join"]:
        delimiter, parts = value["Fn::Join"]
        return delimiter.join(resolved(parts))
    if list(value) == ["Fn::GetAtt"]:
        return f"arn:{PARTITION}:lambda:{REGION}:{ACCOUNT}:function:".ljust(123, "f")
    imported = list(value) in (["Fn::ImportValue"], ["Fn::Select"])
    return "i" * 128 if imported else {key: resolved(each) for key, each in value.items()}
