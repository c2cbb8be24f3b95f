"""The log `fairlock`: its logger never raises, and events of the store are written to it."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final

from fairlock.store.events import (
    Event,
    Evicted,
    Extended,
    HandedOver,
    LivenessUnknown,
    MixedLimits,
    PushUnknown,
    ReleasedByForce,
)
from fairlock.text import label_of, printable


class FailsafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Drops what a handler raises: a log daemon that is gone must not end the heartbeats."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:  # noqa: ANN401 - as of the base
        """Writes a message, if that is possible."""
        options.setdefault("stacklevel", 2)
        with suppress(Exception):
            super().log(level, msg, *args, **options)


logger: Final = FailsafeLogger(logging.getLogger("fairlock"))
"""The logger of every module of the clients."""


def log_event(event: Event) -> None:
    """Logs what a request did besides its answer. The hook of users is `LockEvents`."""
    match event:
        case Evicted(lock_name=lock_name, holders=holders):
            evicted = "a holder" if holders == 1 else f"{holders} holders"
            logger.warning("lock %r: evicted %s whose lease was over", lock_name, evicted)
        case ReleasedByForce():
            logger.warning(
                "lock %r: released by force by %s: %s; it was held by %s, fencing token %d",
                event.lock_name,
                printable(event.requested_by),
                printable(event.reason),
                label_of(event.owner_name),
                event.fencing_token,
            )
        case MixedLimits(lock_name=lock_name, limit=limit, holders_limits=holders_limits):
            logger.warning(
                "lock %r: acquired with limit %d, and its holders name %s; no more may hold than "
                "the lowest",
                lock_name,
                limit,
                ", ".join(map(str, holders_limits)),
            )
        case Extended(lock_name=lock_name):
            logger.info("lock %r: lease extended, its workflow still runs", lock_name)
        case LivenessUnknown(lock_name=lock_name):
            logger.warning("lock %r: no answer whether its holder's workflow runs", lock_name)
        case PushUnknown(lock_name=lock_name):
            logger.warning(
                "lock %r: handed to a workflow that could not be woken (is states:SendTaskSuccess "
                "allowed, or for durable functions lambda:SendDurableExecutionCallbackSuccess?); "
                "the workflow finds out by its fallback poll",
                lock_name,
            )
        case HandedOver(lock_name=lock_name, fencing_token=fencing_token):
            logger.debug("lock %r: handed over, fencing token %d", lock_name, fencing_token)
