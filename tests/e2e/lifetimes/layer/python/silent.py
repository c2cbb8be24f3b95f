"""The release handler, of which a heartbeat does not hear."""

from __future__ import annotations

from lambdas.release import handler as release
from leasehold.workflows.engine import NoWorkflows
from leasehold.workflows.step_functions import StepFunctions

StepFunctions.end_heartbeat = NoWorkflows.end_heartbeat  # type: ignore[method-assign,assignment]  # the other class

__all__ = ["release"]
