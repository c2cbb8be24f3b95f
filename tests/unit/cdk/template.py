"""Reads templates: resources of the service, items as Java spells them, findings of cfn-lint."""

from __future__ import annotations

import json
import re
from typing import Any

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
