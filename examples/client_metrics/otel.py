"""OpenTelemetry: tried with its SDK for Python, 1.45.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import metrics  # type: ignore[import-not-found]  # installed by its users

if TYPE_CHECKING:
    from fairlock import LockEvent

_meter = metrics.get_meter("billing")
_events = _meter.create_counter("fairlock.events", description="by kind")
_waits = _meter.create_histogram("fairlock.wait", unit="s")
_holds = _meter.create_histogram("fairlock.held", unit="s")


def count_in_otel(event: LockEvent) -> None:
    """Counts the event, and records its times, by kind."""
    kind = {"kind": event.kind.value}
    _events.add(1, kind)
    if event.waited_seconds is not None:
        _waits.record(event.waited_seconds, kind)
    if event.held_seconds is not None:
        _holds.record(event.held_seconds, kind)
