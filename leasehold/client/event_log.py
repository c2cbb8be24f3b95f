"""What a client tells the log `leasehold` of hand-offs and the like, if nobody else observes it."""

from __future__ import annotations

from typing import Final

from leasehold.client.logging import failsafe_logger
from leasehold.protocol.model import HandOff
from leasehold.store.events import Event, Evicted, Extended, LivenessUnknown, Observe, PushUnknown

_logger: Final = failsafe_logger()


def log_event(event: Event) -> None:
    """Logs an event; owner ids are proofs of ownership, and stay out."""
    match event:
        case Evicted(lock_name=lock_name, holders=holders):
            _logger.warning("lock %r: %d holders whose lease was over put out", lock_name, holders)
        case Extended(lock_name=lock_name):
            _logger.info("lock %r: lease extended, its workflow still runs", lock_name)
        case LivenessUnknown(lock_name=lock_name):
            _logger.warning("lock %r: no answer whether its holder's workflow runs", lock_name)
        case PushUnknown(lock_name=lock_name):
            _logger.warning(
                "lock %r: handed to a workflow that could not be told (is states:SendTaskSuccess "
                "allowed?); it finds out by its fallback poll",
                lock_name,
            )
        case HandOff(grant=grant):
            _logger.debug("lock %r: handed over", grant.lock_name)


def logging_errors(observe: Observe) -> Observe:
    """Logs what an observer raises: a lock that changed hands has done so, whoever stumbles."""

    def tell(event: Event) -> None:
        try:
            observe(event)
        except Exception:
            _logger.exception("observe failed")

    return tell
