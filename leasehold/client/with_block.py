"""The end of a `with` block: what the work has raised, and what was wrong with its lock."""

from __future__ import annotations

from typing import Final

from leasehold.client.logging import failsafe_logger
from leasehold.errors import LockLost

_logger: Final = failsafe_logger()


def raise_or_note(
    lock_error: Exception | None, error: BaseException | None, *, best_effort_release: bool
) -> None:
    """Returns if the block's own result, or error, stands; a note is added to the error.

    Args:
        lock_error: the loss of the lock, or what its release raised.
        error: what the block raised.
        best_effort_release: whether a release that fails is only logged.

    Raises:
        LockLost: the work has succeeded, but was not alone.
        Exception: the lock_error, if it is not only to be logged.
    """
    if lock_error is None:
        return
    if error is not None:
        if not isinstance(error, LockLost):
            error.add_note(f"At the end of the lock: {lock_error}")
    elif isinstance(lock_error, LockLost) or not best_effort_release:
        raise lock_error
    else:
        _logger.warning("release failed, its lease ends it: %s", lock_error)
