"""Leasehold: leases, fencing tokens and semaphores on one DynamoDB table."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from leasehold.errors import (
    CancellationReason,
    ClientUnusable,
    HolderChanged,
    InvalidRequest,
    LeaseholdError,
    LockItemMalformed,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
    OutcomeUnknown,
    TransactionRefused,
    VersionConflict,
    VisibleHolder,
)

if TYPE_CHECKING:
    from leasehold.aio import AsyncLock, AsyncLockClient
    from leasehold.client.composite_name import composite_name
    from leasehold.client.lock import Lock
    from leasehold.client.lock_client import LockClient
    from leasehold.client.lock_events import LockEvent, LockEventKind
    from leasehold.decorator.locked import locked
    from leasehold.dynamodb.create_table import create_table
    from leasehold.protocol.description import (
        DescribedForcedRelease,
        DescribedHolder,
        DescribedQueue,
        DescribedWaiter,
        LockDescription,
    )

__all__ = [
    "AsyncLock",
    "AsyncLockClient",
    "CancellationReason",
    "ClientUnusable",
    "DescribedForcedRelease",
    "DescribedHolder",
    "DescribedQueue",
    "DescribedWaiter",
    "HolderChanged",
    "InvalidRequest",
    "LeaseholdError",
    "Lock",
    "LockClient",
    "LockDescription",
    "LockEvent",
    "LockEventKind",
    "LockItemMalformed",
    "LockLost",
    "LockStoreMisconfigured",
    "LockStoreUnavailable",
    "LockWaitTimeout",
    "OutcomeUnknown",
    "TransactionRefused",
    "VersionConflict",
    "VisibleHolder",
    "composite_name",
    "create_table",
    "locked",
]

if not TYPE_CHECKING and (find_spec("aiobotocore") is None or find_spec("greenlet") is None):
    # `from leasehold import *` must work without the extra `async`.
    __all__.remove("AsyncLock")  # noqa: PYI056 - the stubs of type checkers see it
    __all__.remove("AsyncLockClient")  # noqa: PYI056 - same

_IMPORTED_LATE = {
    "AsyncLock": "leasehold.aio",
    "AsyncLockClient": "leasehold.aio",
    "DescribedForcedRelease": "leasehold.protocol.description",
    "DescribedHolder": "leasehold.protocol.description",
    "DescribedQueue": "leasehold.protocol.description",
    "DescribedWaiter": "leasehold.protocol.description",
    "Lock": "leasehold.client.lock",
    "LockClient": "leasehold.client.lock_client",
    "LockDescription": "leasehold.protocol.description",
    "LockEvent": "leasehold.client.lock_events",
    "LockEventKind": "leasehold.client.lock_events",
    "composite_name": "leasehold.client.composite_name",
    "create_table": "leasehold.dynamodb.create_table",
    "locked": "leasehold.decorator.locked",
}
"""Imported when first asked for: constructs and handlers import this package too, and need no
boto3 for it."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name not in _IMPORTED_LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_IMPORTED_LATE[name]), name)
