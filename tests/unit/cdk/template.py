"""Finds resources of the service in a template."""

from __future__ import annotations

from typing import Any

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
