"""Stacks that live for a `with` block, created from the templates of the cloud assembly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

_POLLS: Final = {"Delay": 1, "MaxAttempts": 600}
_LONGEST_BODY: Final = 51_200
_GONE: Final = ("ResourceNotFoundException", "ResourceNotFound")


class CloudFormation:
    """Creates and deletes stacks of one account.

    Not guaranteed: assets. The functions of these stacks have the code of a stack that the CDK CLI
    has deployed before, from the same assembly.
    """

    def __init__(self, client: Any, *, assembly: Path, poll_seconds: float) -> None:  # noqa: ANN401 - a boto3 client
        self._client = client
        self._assembly = assembly
        self._polls = {**_POLLS, "Delay": poll_seconds}

    def exists(self, stack: str) -> bool:
        try:
            self._client.describe_stacks(StackName=stack)
        except ClientError as error:
            if "does not exist" in str(error):
                return False
            raise
        return True

    def create(self, stack: str) -> dict[str, str]:
        """Creates a stack; answers its outputs. What a failed creation leaves, `delete` deletes."""
        template = json.loads((self._assembly / f"{stack}.template.json").read_text())
        body = json.dumps(template, separators=(",", ":"))
        assert len(body) <= _LONGEST_BODY, f"{stack}: AWS takes so long a template from S3 only"
        self._client.create_stack(
            StackName=stack,
            TemplateBody=body,
            Capabilities=["CAPABILITY_IAM"],
        )
        self._wait("stack_create_complete", stack)
        [found] = self._client.describe_stacks(StackName=stack)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}

    def delete(self, stack: str) -> None:
        """Deletes a stack; one that is not there does no harm."""
        self._client.delete_stack(StackName=stack)
        self._wait("stack_delete_complete", stack)

    def resources(self, stack: str, kind: str) -> list[str]:
        """The names of a stack's resources of this type."""
        pages = self._client.get_paginator("list_stack_resources").paginate(StackName=stack)
        return [
            str(each["PhysicalResourceId"])
            for page in pages
            for each in page["StackResourceSummaries"]
            if each["ResourceType"] == kind and "PhysicalResourceId" in each
        ]

    @contextmanager
    def created(self, stack: str) -> Iterator[dict[str, str]]:
        """A stack for the time of a block, its outputs given."""
        try:
            yield self.create(stack)
        finally:
            self.delete(stack)

    def _wait(self, event: str, stack: str) -> None:
        self._client.get_waiter(event).wait(StackName=stack, WaiterConfig=self._polls)


def delete_tables(client: Any, names: list[str]) -> None:  # noqa: ANN401 - a boto3 client
    """Deletes tables that outlived their stack; missing ones do no harm."""
    for name in names:
        try:
            client.delete_table(TableName=name)
        except client.exceptions.ResourceNotFoundException:
            continue


def delete_log_groups(client: Any, names: list[str]) -> None:  # noqa: ANN401 - a boto3 client
    """The same for log groups."""
    for name in names:
        try:
            client.delete_log_group(logGroupName=name)
        except client.exceptions.ResourceNotFoundException:
            continue
