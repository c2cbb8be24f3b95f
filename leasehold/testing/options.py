"""The settings that fake clients take: those of the real clients, but for their AWS clients."""

from __future__ import annotations

from typing import TypedDict

from leasehold.client.lock_events import OnEvent
from leasehold.client.settings import Takeover
from leasehold.clock import Seconds


class ClientOptions(TypedDict, total=False):
    """Arguments of `LockClient`, with the same meaning and the same defaults."""

    owner_name: str | None
    lease: Seconds
    max_wait: Seconds | None
    heartbeat_every: Seconds | None
    safe_period: Seconds | None
    takeover: Takeover
    longest_poll: Seconds
    max_workers: int
    best_effort_release: bool
    on_event: OnEvent | None
