"""The fixtures that users get from the plugin."""

from fairlock.testing.plugin import (
    fairlock_async_locks,
    fairlock_clock,
    fairlock_locks,
    fairlock_table,
)

__all__ = ["fairlock_async_locks", "fairlock_clock", "fairlock_locks", "fairlock_table"]
