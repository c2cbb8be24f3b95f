"""The release handler, of which a heartbeat does not hear."""

from __future__ import annotations

from lambdas import _runtime
from leasehold.push import end_no_beat

_runtime.end_beat = end_no_beat  # type: ignore[assignment]  # the parameters have other names

from lambdas.release import handler as release  # noqa: E402 - after the change above

__all__ = ["release"]
