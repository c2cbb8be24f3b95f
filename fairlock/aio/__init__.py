"""Locks for asyncio: `AsyncLockClient` does what `LockClient` does, without threads.

    async_lock_client, async_lock   the surface
    tasks                           acquisitions that may be cancelled, and heartbeats
    bridge                          runs the synchronous protocol in a greenlet, so that it can be
                                    awaited; and the clients of aiobotocore that it awaits

Needs the extra `async`.
"""

from __future__ import annotations

from fairlock.text import extra_missing

try:
    import aiobotocore  # noqa: F401 - only to say in good time that it is missing
    import greenlet  # noqa: F401 - same
except ImportError as missing:
    message = extra_missing("AsyncLockClient needs aiobotocore and greenlet", extra="async")
    raise ImportError(message, name=missing.name) from missing

from fairlock.aio.async_lock import AsyncLock
from fairlock.aio.async_lock_client import AsyncLockClient

__all__ = ["AsyncLock", "AsyncLockClient"]
