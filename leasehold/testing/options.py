"""The settings that fake clients take: those of the real clients, but for their AWS clients."""

from __future__ import annotations

from typing import TypedDict

from leasehold.client.lock_events import OnEvent
from leasehold.store.events import Observe


class ClientOptions(TypedDict, total=False):
    """Arguments of `LockClient`, with the same meaning and the same defaults."""

    owner_name: str | None
    lease: float
    wait: float | None
    heartbeat_every: float | None
    safe_period: float | None
    longest_poll: float
    max_workers: int
    best_effort_release: bool
    observe: Observe | None
    on_event: OnEvent | None
