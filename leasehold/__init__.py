"""Leasehold: leases, fencing tokens and semaphores on one DynamoDB table."""

from __future__ import annotations

from leasehold.errors import (
    InvalidRequest,
    LeaseholdError,
    LockLost,
    LockStoreUnavailable,
    LockWaitTimeout,
)

__all__ = [
    "InvalidRequest",
    "LeaseholdError",
    "LockLost",
    "LockStoreUnavailable",
    "LockWaitTimeout",
]
