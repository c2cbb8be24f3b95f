"""Constructs: the lock service, and the guard that runs a part of a workflow under a lock."""

from __future__ import annotations

from leasehold.cdk.guard import LockGuard
from leasehold.cdk.optimistic_update import OptimisticUpdate
from leasehold.cdk.reaper import ExecutionReaper
from leasehold.cdk.service import ILockService, ImportedLockService, LockService
from leasehold.cdk.waiting import Waiting

__all__ = [
    "ExecutionReaper",
    "ILockService",
    "ImportedLockService",
    "LockGuard",
    "LockService",
    "OptimisticUpdate",
    "Waiting",
]
