"""Lambda entry point: measure how long owners wait for locks that an operator wants to watch.

`LockClient` asks no function, so only the table shows that its callers wait.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from fairlock.errors import LockItemMalformed
from fairlock.names import WATCHED_VARIABLE, LogMessage, MetricName
from fairlock.protocol.description import LockDescription
from fairlock.store.administration import describe, list_locks
from lambdas.runtime import Invocation, entry_point, lock_context, logger, measure_of_watched

if TYPE_CHECKING:
    from fairlock.store.context import LockContext

ANY: Final = "*"
"""At the end of a name: all locks that begin with what stands before it."""
_SHOWN: Final = 20


@entry_point("dynamodb")
def handler(_event: dict[str, Any], context: Invocation) -> dict[str, int]:
    """Measures the longest wait under each watched name, 0 if no owner waits; logs each such lock.

    Raises:
        LockStoreUnavailable: the table did not answer. The other names are measured next time.
        LockItemMalformed: of the first lock that is malformed, after all others were measured.
    """
    locks = lock_context(context)
    longest: dict[str, int] = {}
    malformed: list[LockItemMalformed] = []
    for watched in json.loads(os.environ[WATCHED_VARIABLE]):
        unread: list[LockItemMalformed] = []
        waits = sorted(_waits(locks, watched, unread), key=lambda wait: -wait[0])
        malformed += unread
        for error in unread[:_SHOWN]:
            logger.error(LogMessage.MALFORMED, reason=str(error))
        for waited_ms, lock in waits[:_SHOWN]:
            logger.info(
                LogMessage.QUEUED,
                lock_name=lock.name,
                waited_ms=waited_ms,
                waiters=lock.waiters.count,
                held_by=[holder.owner_name for holder in lock.holders],
            )
        if unread and not waits:
            continue  # Zero would be a guess: the lock that could not be read may be waited for.
        longest[watched] = waits[0][0] if waits else 0
        measure_of_watched(MetricName.CURRENT_WAIT, longest[watched], locks=watched)
    if malformed:
        raise malformed[0]  # Only a failure is seen: its alarm is WatchErrors.
    return longest


def _waits(
    context: LockContext, watched: str, unread: list[LockItemMalformed]
) -> Iterator[tuple[int, LockDescription]]:
    found: Iterable[LockDescription | LockItemMalformed | None]
    if watched.endswith(ANY):
        found = list_locks(context, watched.removesuffix(ANY))
    else:
        try:
            found = [describe(context, watched)]
        except LockItemMalformed as malformed:
            found = [malformed]
    for lock in found:
        if isinstance(lock, LockItemMalformed):
            unread.append(lock)
        elif lock is not None and lock.waiters.oldest is not None:
            waited = lock.seen_at - lock.waiters.oldest
            yield max(0, int(waited.total_seconds() * 1000)), lock
