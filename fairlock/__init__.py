"""Fairlock: leases, fencing tokens and semaphores on one DynamoDB table."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fairlock.errors import (
    CancellationReason,
    ClientUnusable,
    DescribedHolder,
    FairlockError,
    HolderChanged,
    InvalidRequest,
    LockItemMalformed,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
    OutcomeUnknown,
    SlotTooLate,
    Superseded,
    TransactionRefused,
    VersionConflict,
)

if TYPE_CHECKING:
    from fairlock.aio import AsyncLock, AsyncLockClient
    from fairlock.client.arguments import composite_name
    from fairlock.client.create_table import create_table
    from fairlock.client.lock import Lock
    from fairlock.client.lock_client import LockClient
    from fairlock.client.reporting import LockEvent, LockEventKind
    from fairlock.decorator.locked import locked
    from fairlock.protocol.description import (
        DescribedForcedRelease,
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
    "FairlockError",
    "HolderChanged",
    "InvalidRequest",
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
    "SlotTooLate",
    "Superseded",
    "TransactionRefused",
    "VersionConflict",
    "composite_name",
    "create_table",
    "locked",
]

if not TYPE_CHECKING and (find_spec("aiobotocore") is None or find_spec("greenlet") is None):
    # `from fairlock import *` must work without the extra `async`.
    __all__.remove("AsyncLock")  # noqa: PYI056 - the stubs of type checkers see it
    __all__.remove("AsyncLockClient")  # noqa: PYI056 - same

_IMPORTED_LATE = {
    "AsyncLock": "fairlock.aio",
    "AsyncLockClient": "fairlock.aio",
    "DescribedForcedRelease": "fairlock.protocol.description",
    "DescribedQueue": "fairlock.protocol.description",
    "DescribedWaiter": "fairlock.protocol.description",
    "Lock": "fairlock.client.lock",
    "LockClient": "fairlock.client.lock_client",
    "LockDescription": "fairlock.protocol.description",
    "LockEvent": "fairlock.client.reporting",
    "LockEventKind": "fairlock.client.reporting",
    "composite_name": "fairlock.client.arguments",
    "create_table": "fairlock.client.create_table",
    "locked": "fairlock.decorator.locked",
}
"""Imported when first asked for: constructs and handlers import this package too, and need no
boto3 for it."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name not in _IMPORTED_LATE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_IMPORTED_LATE[name]), name)
