"""Tracing and processors of the functions, with defaults that exist in the region of the stack.

Lambda has no X-Ray in the regions of China, and not everywhere arm64. A stack may name no region,
so CloudFormation decides by the partition, when the stack is deployed.
"""

from __future__ import annotations

from typing import cast

from aws_cdk import Aws, CfnCondition, Fn
from aws_cdk import aws_lambda as lambda_
from constructs import Construct


class Platform:
    """Tracing and architecture of functions, as they were asked for or by default.

    Attributes:
        tracing, architecture: for the construct of a function.
    """

    def __init__(
        self, scope: Construct, *, tracing: bool | None, architecture: lambda_.Architecture | None
    ) -> None:
        """Takes None for a default, and then adds a condition to the stack."""
        self.tracing = lambda_.Tracing.DISABLED if tracing is False else lambda_.Tracing.ACTIVE
        self.architecture = architecture or lambda_.Architecture.ARM_64
        self._defaults: dict[str, tuple[str, str]] = {}
        if tracing is None:
            self._defaults["TracingConfig.Mode"] = ("Active", "PassThrough")
        if architecture is None:
            names = (lambda_.Architecture.ARM_64.name, lambda_.Architecture.X86_64.name)
            self._defaults["Architectures.0"] = names
        if self._defaults:
            usual = Fn.condition_equals(Aws.PARTITION, "aws")
            self._usual = CfnCondition(scope, "PartitionAws", expression=usual).logical_id

    def set_defaults(self, function: lambda_.Function) -> None:
        """Lets the partition decide about what nobody asked for."""
        resource = cast("lambda_.CfnFunction", function.node.default_child)
        for property_path, (usual, elsewhere) in self._defaults.items():
            value = Fn.condition_if(self._usual, usual, elsewhere)
            resource.add_property_override(property_path, value)
