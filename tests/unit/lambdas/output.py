"""What the handlers print: each line is JSON, a metric in CloudWatch's embedded format or a log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

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
