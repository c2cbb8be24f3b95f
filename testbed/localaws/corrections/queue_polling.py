"""A function gets a message of its queue as soon as that becomes visible.

AWS: Lambda polls a queue by long polling (Lambda developer guide, "Using Lambda with Amazon SQS"),
and a long poll returns as soon as a message is there (SQS developer guide, "Amazon SQS short and
long polling"), also one whose delay or visibility timeout has just ended.

Emulator: a message that is sent wakes the poller at once, but one that becomes visible later waits
for a tick that comes once a second.

This: the poller sleeps until the next message of a polled queue becomes visible.
"""

import threading
import time
from collections.abc import Iterator

from ministack.services import lambda_svc, sqs


def apply() -> None:
    """Replace what the poller waits for."""
    lambda_svc._esm_wake = _Wake(lambda_svc._esm_wake)


class _Wake:
    """The poller's event; a wait for it also ends when a message becomes visible."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event
        self._pass_began_at = 0.0

    def clear(self) -> None:
        """Called at the start of each pass, which takes what is visible from then on."""
        self._pass_began_at = time.time()
        self._event.clear()

    def set(self) -> None:
        """Wake the poller."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Whether it was woken; False when the time, or the time of a message, has come."""
        # What was due before the pass and was not taken waits for something else than the time.
        due = [moment for moment in _moments() if moment > self._pass_began_at]
        left = min(due, default=float("inf")) - time.time()
        return self._event.wait(max(0.0, min(seconds, left)))


def _moments() -> Iterator[float]:
    """When the messages of polled queues become visible, and when pauses after errors end."""
    yield from list(lambda_svc._esm_backoff_until._data.values())
    for _, _, mapping in lambda_svc._iter_all_esms():
        queue = sqs._queue_by_arn(mapping["EventSourceArn"])
        if queue is not None:
            yield from [message["visible_at"] for message in list(queue["messages"])]
