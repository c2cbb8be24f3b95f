"""The release handler, of which a heartbeat does not hear."""

from __future__ import annotations

from fairlock.aws.executions import NoWorkflows, StepFunctions
from lambdas.release import handler as release

StepFunctions.end_heartbeat = NoWorkflows.end_heartbeat  # type: ignore[method-assign,assignment]  # the other class

__all__ = ["release"]
