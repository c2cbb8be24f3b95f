"""Constructs: the lock service, and the guard that runs a part of a workflow under a lock."""

from __future__ import annotations

import os
import shutil

from fairlock.text import extra_missing

if shutil.which(os.environ.get("JSII_NODE", "node")) is None:
    # Else the import of aws_cdk ends with AttributeError: '_NodeProcess' object has no attribute …
    raise ImportError(
        "fairlock.cdk needs Node.js 22 or newer, which the CDK runs, and there is no node on the "
        "path: install it, or set JSII_NODE to it (docs/install.md)"
    )
try:
    import aws_cdk  # noqa: F401 - only to say in good time that it is missing
    import constructs  # noqa: F401 - same
except ModuleNotFoundError as missing:
    if missing.name not in {"aws_cdk", "constructs"}:
        raise
    message = extra_missing("fairlock.cdk needs aws-cdk-lib and constructs", extra="cdk")
    raise ModuleNotFoundError(message, name=missing.name) from missing

from fairlock.cdk.guard.guard import LockGuard
from fairlock.cdk.guard.waiting import Waiting
from fairlock.cdk.monitoring import LockAlarms, LockMonitoring
from fairlock.cdk.optimistic_update import OptimisticUpdate
from fairlock.cdk.pace_state import Pace
from fairlock.cdk.service.lock_service import LockService
from fairlock.cdk.service.reaper import ExecutionReaper
from fairlock.cdk.service.service_base import ILockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.names import MetricName

__all__ = [
    "ExecutionReaper",
    "ILockService",
    "LockAlarms",
    "LockGuard",
    "LockMonitoring",
    "LockService",
    "MetricName",
    "OptimisticUpdate",
    "Pace",
    "SharedLockService",
    "Waiting",
]
