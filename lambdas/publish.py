"""Lambda entry point: tell EventBridge what the lock table's stream tells of locks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from fairlock.errors import LockItemMalformed
from fairlock.names import LogMessage
from fairlock.protocol.items import read_state
from fairlock.protocol.schema import lock_key
from fairlock.wire.lifecycle import StreamRecords, lifecycle_json
from lambdas.runtime import Invocation, entry_point, lock_context, logger, put_events

_SOURCE: Final = "fairlock"
_MOST_AT_ONCE: Final = 10
"""Entries of one PutEvents."""
_LARGEST_DETAIL: Final = 20_000
"""Ten of them are below the 256 KB of one PutEvents; the largest of
what Fairlock has written has half of it."""


@entry_point("dynamodb", "events")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Publishes what a batch of records tells; raises if EventBridge did not take all.

    Then Lambda brings the batch again, so that an event may come twice, with the same `event_id`.
    """
    batch = StreamRecords(
        event["Records"], lambda name: read_state(lock_context(context).table.read(lock_key(name)))
    )
    entries = (entry for place in range(len(batch.records)) for entry in _entries(batch, place))
    published = 0
    while some := list(islice(entries, _MOST_AT_ONCE)):
        put_events(some)
        published += len(some)
    return {"published": published}


def _entries(batch: StreamRecords, place: int) -> Iterator[dict[str, str]]:
    record = batch.records[place]
    at_ms = round(float(record["dynamodb"]["ApproximateCreationDateTime"]) * 1000)
    try:
        told = list(batch.events(place))
    except LockItemMalformed as error:
        # A repeat would not help, and all later records would wait for it.
        logger.warning(LogMessage.MALFORMED, extra={"reason": str(error)})
        return
    for number, event in enumerate(told):
        detail = json.dumps(
            lifecycle_json(event, event_id=f"{record['eventID']}-{number}", at_ms=at_ms)
        )
        if len(detail) > _LARGEST_DETAIL:
            # Only who writes the table makes one. EventBridge would never take it.
            logger.warning(LogMessage.MALFORMED, extra={"reason": "the event is too large"})
            continue
        yield {"Source": _SOURCE, "DetailType": event.kind.value, "Detail": detail}
