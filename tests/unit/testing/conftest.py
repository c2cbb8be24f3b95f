"""The fixtures that users get from the plugin."""

from fairlock.testing.plugin import (
    fairlock_async_locks,
    fairlock_clock,
    fairlock_locks,
    fairlock_table,
)
from tests.unit.client.doubles import pytest_pyfunc_call

__all__ = [
    "fairlock_async_locks",
    "fairlock_clock",
    "fairlock_locks",
    "fairlock_table",
    "pytest_pyfunc_call",
]
