"""`LockAlarms`: which alarms there are, and when each of them fires."""

from __future__ import annotations

from dataclasses import dataclass, field

from aws_cdk import Duration

from fairlock.cdk.construct_arguments import whole_seconds
from fairlock.errors import InvalidRequest

_DURATIONS = ("current_wait", "hand_off_latency")
_COUNTS = (
    "lost",
    "taken_over",
    "queue_length",
    "dead_letters",
    "function_errors",
    "throttles",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAlarms:
    """Thresholds, each for a period of 5 minutes; None makes no alarm.

    Attributes:
        current_wait: a waiter asks again after it has waited so long: its lock may be stuck. Give
            more than your work usually makes others wait.
        lost: owners that acted on a lock which they had lost.
        taken_over: holders that were evicted because their leases were over.
        queue_length: waiters of one lock.
        hand_off_latency: the 95th percentile, from the departure of a holder that somebody noticed
            to the message to the next one.
        dead_letters: events that the reaper could not handle; none if the service has no reaper.
        function_errors: of one function. Requests that it refuses by an error count, too.
        throttles: of one function, or of the table's reads or writes.
    """

    current_wait: Duration | None = field(default_factory=lambda: Duration.minutes(30))
    lost: int | None = 1
    taken_over: int | None = None
    queue_length: int | None = None
    hand_off_latency: Duration | None = None
    dead_letters: int | None = 1
    function_errors: int | None = 10
    throttles: int | None = 1

    def __post_init__(self) -> None:
        """Checks each threshold.

        Raises:
            InvalidRequest: one is no positive Duration of whole seconds, or no positive number.
        """
        for name in _DURATIONS:
            duration = getattr(self, name)
            if duration is not None and whole_seconds(name, duration) < 1:
                rule = "must be longer than nothing, or None for no alarm"
                raise InvalidRequest(field=name, rule=rule, value="0 s")
        for name in _COUNTS:
            count = getattr(self, name)
            whole = isinstance(count, int) and not isinstance(count, bool)
            if count is not None and not (whole and count >= 1):
                rule = "must be a whole number from 1 on, or None for no alarm"
                raise InvalidRequest(field=name, rule=rule, value=count)
