"""What people do with the locks of a table, to be awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from fairlock.aio.bridge import run
from fairlock.client.administration import (
    NotCopied,
    checked_prefix,
    force_release_request,
    locks_of,
    send_force_release,
    send_release,
)
from fairlock.client.settings import ClientSettings
from fairlock.client.store_factory import StoreFactory
from fairlock.errors import VisibleHolder
from fairlock.protocol.description import LockDescription
from fairlock.wire import rules


class AsyncLockAdministration(NotCopied, ABC):
    """The part of `AsyncLockClient` that needs no lock of its own."""

    async def describe(self, name: str) -> LockDescription | None:
        """Tells who holds a lock and who waits for it. As `LockClient.describe`."""
        name = rules.plain_text("name", rules.LOCK_NAME, name)
        store_factory = self._opened()
        return await run(lambda: store_factory.store().describe(name))

    def list(self, prefix: str | None = None) -> AsyncIterator[LockDescription]:
        """Iterates over the locks that the table knows. As `LockClient.list`, costs included."""
        return _locks_of(self._opened(), checked_prefix(prefix))

    async def force_release(
        self,
        name: str,
        *,
        holder: VisibleHolder | None = None,
        fencing_token: int | None = None,
        reason: str,
        requested_by: str | None = None,
    ) -> None:
        """Takes a lock away from a holder, for the oldest waiter if there is one.

        Arguments and errors as of `LockClient.force_release`.
        """
        request = force_release_request(
            self._administrator_settings(),
            name,
            holder,
            fencing_token,
            reason=reason,
            requested_by=requested_by,
        )
        await run(send_force_release, self._opened(), request)

    async def release(self, name: str, owner_id: str) -> bool:
        """Releases what a function or another process has acquired. As `LockClient.release`."""
        return await run(send_release, self._opened(), name, owner_id)

    @abstractmethod
    def _opened(self) -> StoreFactory:
        """The lock table; raises `ClientUnusable` once the client is closed."""

    @abstractmethod
    def _administrator_settings(self) -> ClientSettings:
        """The settings of the client."""


async def _locks_of(store_factory: StoreFactory, prefix: str) -> AsyncIterator[LockDescription]:
    found = locks_of(store_factory, prefix)
    while (lock := await run(next, found, None)) is not None:
        yield lock
