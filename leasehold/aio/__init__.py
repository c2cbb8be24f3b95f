"""Locks for asyncio: `AsyncLockClient` does what `LockClient` does, without threads.

    bridge        runs the synchronous protocol in a greenlet, so that it can be awaited
    connection    aiobotocore clients, and how the protocol calls them
    heartbeats    one task that plans, and one for each heartbeat under way
    client, lock  the surface

Needs the extra: `pip install 'leasehold[async]'`.
"""

from __future__ import annotations

try:
    import aiobotocore  # noqa: F401 - only to say in good time that it is missing
    import greenlet  # noqa: F401 - same
except ImportError as missing:
    message = (
        "AsyncLockClient needs aiobotocore and greenlet, an optional part of Leasehold: "
        "pip install 'leasehold[async]'"
    )
    raise ImportError(message, name=missing.name) from missing

from leasehold.aio.lock import AsyncLock
from leasehold.aio.lock_client import AsyncLockClient

__all__ = ["AsyncLock", "AsyncLockClient"]
