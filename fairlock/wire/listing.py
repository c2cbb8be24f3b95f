"""The answer of a list: as many locks as fit into one, and where the next call goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from fairlock.errors import LockItemMalformed
from fairlock.protocol.description import LockDescription
from fairlock.wire.descriptions import lock_json

MOST_LOCKS: Final = 1_000
MOST_BYTES: Final = 2_000_000
"""Of the locks of one answer; Lambda answers 6 MB at most, and the largest lock takes 0.4 MB."""


def list_answer(
    found: Iterator[LockDescription | LockItemMalformed],
    *,
    free: bool,
    has_time: Callable[[], bool],
) -> dict[str, Any]:
    """Makes the answer of a list.

    Args:
        found: the locks of the table, as they are read.
        free: whether locks are wanted that nobody holds or waits for.
        has_time: whether there is time for another lock.

    Returns:
        `locks`; `after`, the name to go on after, null if these were all; and `malformed`, the keys
        of locks whose items somebody has changed.
    """
    locks: list[dict[str, Any]] = []
    malformed: list[str] = []
    after, size = None, 0
    for lock in found:
        if isinstance(lock, LockItemMalformed):
            malformed.append(lock.partition_key)
            continue
        if free or lock.holders or lock.waiters.count:
            locks.append(lock_json(lock))
            size += len(json.dumps(locks[-1]))
        if len(locks) >= MOST_LOCKS or size >= MOST_BYTES or not has_time():
            after = lock.name
            break
    return {"locks": locks, "after": after, "malformed": malformed}
