"""Signal handlers: they run in the main thread, in the middle of whatever it does."""

from __future__ import annotations


def is_inside(lock: object) -> bool:
    """Whether this very thread holds the lock: we are in a handler that came in the middle.

    What waits here then, for the lock or for a thread that needs it, waits for itself.

    Args:
        lock: a `threading.RLock`. Any other kind is never said to be held.
    """
    is_owned = getattr(lock, "_is_owned", None)  # `threading.Condition` asks in the same way.
    return is_owned is not None and bool(is_owned())
