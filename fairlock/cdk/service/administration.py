"""The functions by which people see locks and free them without access to the table.

Two functions, because IAM grants whole functions: many may see, and few may free. Neither shows an
owner_id, and only these two roles read all of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_lambda as lambda_

from fairlock.cdk.service.functions import FunctionFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrationFunctions:
    """What a service with `administration=True` has besides.

    Attributes:
        inspect: describes a lock, or lists those that are in use; None if it was not imported.
        force_release: releases a holder by force, and logs who did it and why; None if it was
            not imported.
    """

    inspect: lambda_.IFunction | None
    force_release: lambda_.IFunction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAdministrationFunctions(AdministrationFunctions):
    """Those of a service that is made here."""

    inspect: lambda_.Function
    force_release: lambda_.Function


def make_administration(functions: FunctionFactory) -> OwnAdministrationFunctions:
    """Makes both functions."""
    return OwnAdministrationFunctions(
        inspect=functions.make(
            "Inspect",
            description="Fairlock: describes and lists locks",
            table_actions=["GetItem", "Query", "Scan"],
            workflow_actions=[],
        ),
        force_release=functions.make(
            "ForceRelease",
            description="Fairlock: releases holders by force",
            handler="force_release",
            table_actions=["UpdateItem", "DeleteItem", "Query", "GetItem"],
            workflow_actions=["DescribeExecution", "SendTaskSuccess"],
        ),
    )
