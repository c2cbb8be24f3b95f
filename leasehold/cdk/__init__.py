"""Constructs: the lock service, and the guard that runs a part of a workflow under a lock."""

from __future__ import annotations

from leasehold.cdk.guard import LockGuard
from leasehold.cdk.service import ILockService, ImportedLockService, LockService
from leasehold.cdk.waiting import Waiting

__all__ = ["ILockService", "ImportedLockService", "LockGuard", "LockService", "Waiting"]
