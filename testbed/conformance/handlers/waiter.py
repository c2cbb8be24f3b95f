"""No requirement of AWS: waits for a callback, see `testbed.conformance.answers`."""

from __future__ import annotations

from typing import Any

from aws_durable_execution_sdk_python import CallbackError
from aws_durable_execution_sdk_python.config import CallbackConfig

from testbed.conformance.handlers.case import Case, requirement, seconds


@requirement("waits")
def _waits(case: Case) -> Any:
    config = CallbackConfig(timeout=seconds(case.input["callback_seconds"]))
    try:
        return case.context.create_callback(config=config).result()
    except CallbackError:
        return case.context.create_callback().result()
