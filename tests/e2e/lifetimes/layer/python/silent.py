"""The release handler, of which a heartbeat does not hear."""

from __future__ import annotations

from lambdas import runtime as _runtime
from leasehold.workflows.task_tokens import end_no_heartbeat

_runtime.end_heartbeat = end_no_heartbeat  # type: ignore[assignment]  # the parameters have other names

from lambdas.release import handler as release  # noqa: E402 - after the change above

__all__ = ["release"]
