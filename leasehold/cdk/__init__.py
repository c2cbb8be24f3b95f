"""Constructs: the lock service, and the guard that runs a part of a workflow under a lock."""

from __future__ import annotations

try:
    import aws_cdk  # noqa: F401 - only to say in good time that it is missing
    import constructs  # noqa: F401 - same
except ModuleNotFoundError as missing:
    if missing.name not in {"aws_cdk", "constructs"}:
        raise
    message = (
        "leasehold.cdk needs aws-cdk-lib and constructs, an optional part of Leasehold: "
        "install Leasehold from its repository with the extra 'cdk' "
        "(the package leasehold on PyPI is another project's)"
    )
    raise ModuleNotFoundError(message, name=missing.name) from missing

from leasehold.cdk.guard.guard import LockGuard
from leasehold.cdk.guard.waiting import Waiting
from leasehold.cdk.monitoring.monitoring import LockMonitoring
from leasehold.cdk.monitoring.thresholds import LockAlarms
from leasehold.cdk.optimistic.optimistic_update import OptimisticUpdate
from leasehold.cdk.service.imported_service import ILockService
from leasehold.cdk.service.lock_service import LockService
from leasehold.cdk.service.reaper import ExecutionReaper
from leasehold.cdk.service.shared_service import SharedLockService
from leasehold.metrics import MetricName

__all__ = [
    "ExecutionReaper",
    "ILockService",
    "LockAlarms",
    "LockGuard",
    "LockMonitoring",
    "LockService",
    "MetricName",
    "OptimisticUpdate",
    "SharedLockService",
    "Waiting",
]
