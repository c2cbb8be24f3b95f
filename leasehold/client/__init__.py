"""`LockClient`, and the parts that it is made of.

    lock_client ─▶ acquisition ─▶ store_factory ─▶ connection
         └───────▶ heartbeats ──▶ heartbeat_schedule     whose heartbeat is due
                       └────────▶ lease_handle           one grant, and how long it lasts

Import from `leasehold`: only the names below are public.
"""

from __future__ import annotations

from leasehold.client.lock import Lock
from leasehold.client.lock_client import LockClient

__all__ = ["Lock", "LockClient"]
