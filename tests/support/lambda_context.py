"""What the Lambda runtime hands to a handler beside the event, and what handlers print."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class LambdaContextStub:
    function_name: str = "acquire"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000


# What handlers print: each line is JSON, a metric in the embedded format of CloudWatch or a log.

Line = dict[str, Any]


def lines(capsys: pytest.CaptureFixture[str]) -> list[Line]:
    """All that was printed since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics(found: Iterable[Line]) -> list[Line]:
    return [line for line in found if "_aws" in line]


def logged(found: Iterable[Line]) -> list[Line]:
    return [line for line in found if "_aws" not in line]


def values(found: Iterable[Line]) -> dict[str, list[float]]:
    """The values of each metric."""
    return {
        metric["Name"]: line[metric["Name"]]
        for line in metrics(found)
        for directive in line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, list[float]], list[str]]:
    """The values of each metric, and the messages logged, since the last call."""
    found = lines(capsys)
    return values(found), [line["message"] for line in logged(found)]
