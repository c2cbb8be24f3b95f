"""One requirement on one engine, judged by AWS's package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from aws_durable_execution_conformance_tests.callback import CallbackAction
from aws_durable_execution_conformance_tests.cloudwatch import CloudWatchLogValidator
from aws_durable_execution_conformance_tests.config import TESTS_DIR
from aws_durable_execution_conformance_tests.history import load_yaml_file
from aws_durable_execution_conformance_tests.validate import (
    AsyncValidationConfig,
    PollingValidator,
    discover_test_files,
)
from aws_durable_execution_conformance_tests.variables import PlaceholderContext

from testbed.conformance.engine import Engine
from testbed.conformance.outcome import Outcome, Verdict

_POLL_SECONDS: Final = 0.2


def requirements() -> dict[str, Path]:
    """AWS's requirements, by name like 1-1, in their order."""
    found = discover_test_files(TESTS_DIR)
    return {name: Path(found[name]) for name in sorted(found, key=_in_order)}


def _in_order(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-"))


def title(path: Path) -> str:
    """A requirement in AWS's words."""
    return str(load_yaml_file(str(path))["description"])


def try_out(engine: Engine, name: str, path: Path, notes: Path) -> Outcome:
    """Runs a requirement's handler, and completes its callbacks; waits for its end."""
    wanted = load_yaml_file(str(path))
    variables = PlaceholderContext()
    variables.resolve_variables(wanted.get("Variables"))
    arn = engine.start(name, variables.substitute(wanted.get("Input")), notes)
    validator = PollingValidator(
        engine.client, AsyncValidationConfig(poll_interval_seconds=_POLL_SECONDS), variables
    )
    judged = validator.validate(
        arn,
        wanted["ExpectedExecutionHistory"],
        wanted.get("ExpectedResult"),
        [CallbackAction.from_dict(action) for action in wanted.get("CallbackActions", [])],
    )
    acted = [*_result(engine, arn, wanted, variables), *_log(wanted, notes, variables)]
    if acted:
        return Outcome(Verdict.DIFFERENT, acted[0])
    if not judged.passed:
        return Outcome(Verdict.HISTORY, judged.errors[0])
    return Outcome(Verdict.AS_REQUIRED)


def _result(engine: Engine, arn: str, wanted: Any, variables: PlaceholderContext) -> list[str]:
    """What differs in status and result, whatever the history says."""
    expected = wanted.get("ExpectedResult")
    if expected is None:
        return []
    found = engine.client.get_durable_execution(DurableExecutionArn=arn)
    if found["Status"] != expected["ExecutionStatus"]:
        return [f"status {found['Status']}, not {expected['ExecutionStatus']}"]
    if "Result" not in expected or found["Status"] != "SUCCEEDED":
        return []
    result = json.loads(found.get("Result") or "null")
    wanted_result = variables.substitute(expected["Result"])
    return [] if result == wanted_result else [f"result {result!r}, not {wanted_result!r}"]


def _log(wanted: Any, notes: Path, variables: PlaceholderContext) -> list[str]:
    if "ExpectedLogs" not in wanted:
        return []
    log = notes / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    events = [{"message": line, "timestamp": number} for number, line in enumerate(lines)]
    errors: list[str] = (
        CloudWatchLogValidator().validate(wanted["ExpectedLogs"], events, context=variables).errors
    )
    return errors
