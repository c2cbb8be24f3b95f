"""Locks inside Lambda durable functions, which wait in the queue without a running function.

Needs the extra `durable`, in the durable function's own package.
"""

from __future__ import annotations

from fairlock.text import extra_missing

try:
    import aws_durable_execution_sdk_python  # noqa: F401 - only to say in good time that it is missing
except ImportError as missing:
    needs = "fairlock.durable needs aws-durable-execution-sdk-python"
    message = extra_missing(needs, extra="durable")
    raise ImportError(message, name=missing.name) from missing

from fairlock.durable.durable_lock import DurableLock
from fairlock.durable.holding import hold
from fairlock.durable.lock_functions import LockFunctions

__all__ = ["DurableLock", "LockFunctions", "hold"]
