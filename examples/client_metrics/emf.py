"""Embedded metric format: CloudWatch makes metrics of it where stdout goes to CloudWatch Logs."""

from __future__ import annotations

import json
import time
from typing import Final

from fairlock import LockEvent

_UNITS: Final = {"WaitTime": "Seconds", "HeldTime": "Seconds"}


def count_in_emf(event: LockEvent) -> None:
    """Prints one line, whose metrics have no lock among their dimensions."""
    values: dict[str, float] = {event.kind.value: 1}
    if event.waited_seconds is not None:
        values["WaitTime"] = event.waited_seconds
    if event.held_seconds is not None:
        values["HeldTime"] = event.held_seconds
    metrics = [{"Name": name, "Unit": _UNITS.get(name, "Count")} for name in values]
    directive = {"Namespace": "FairlockClient", "Dimensions": [["service"]], "Metrics": metrics}
    line = {
        "_aws": {"Timestamp": time.time_ns() // 1_000_000, "CloudWatchMetrics": [directive]},
        "service": "billing",
        "lock_name": event.lock_name,
        "owner_name": event.owner_name,
        "fencing_token": event.fencing_token,
        "reason": event.reason,
        **values,
    }
    print(json.dumps(line), flush=True)  # noqa: T201 - Lambda sends what is printed to its logs
