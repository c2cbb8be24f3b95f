"""A durable function for each requirement, dispatched by the event's field `requirement`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution

from testbed.conformance.handlers import (
    callbacks,
    children,
    conditions,
    maps,
    parallels,
    steps,
    submitters,
    waiter,
)
from testbed.conformance.handlers.case import HANDLERS, Case

_REGISTERED = (callbacks, children, conditions, maps, parallels, steps, submitters, waiter)
"""The modules that fill HANDLERS."""


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> Any:
    """Runs the handler of a requirement."""
    notes = Path(event["notes"])
    notes.mkdir(exist_ok=True)
    return HANDLERS[event["requirement"]](Case(context, event["input"], notes))
