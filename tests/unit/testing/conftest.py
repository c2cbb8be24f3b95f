"""The fixtures that users get from the plugin."""

from leasehold.testing.plugin import (
    leasehold_async_locks,
    leasehold_clock,
    leasehold_locks,
    leasehold_table,
)

__all__ = ["leasehold_async_locks", "leasehold_clock", "leasehold_locks", "leasehold_table"]
