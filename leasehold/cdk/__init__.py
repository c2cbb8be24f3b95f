"""Constructs: the lock service, and the guard that runs a part of a workflow under a lock."""

from __future__ import annotations

from leasehold.cdk.guard.guard import LockGuard
from leasehold.cdk.guard.waiting import Waiting
from leasehold.cdk.optimistic.optimistic_update import OptimisticUpdate
from leasehold.cdk.service.imported_service import ILockService, ImportedLockService
from leasehold.cdk.service.lock_service import LockService
from leasehold.cdk.service.reaper import ExecutionReaper

__all__ = [
    "ExecutionReaper",
    "ILockService",
    "ImportedLockService",
    "LockGuard",
    "LockService",
    "OptimisticUpdate",
    "Waiting",
]
