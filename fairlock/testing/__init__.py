"""For tests of code that takes locks: clients without AWS, and a clock to move.

Fake clients are real ones over a lock table in memory, which counts requests and can fail; `plugin`
has fixtures for pytest. docs/testing.md shows how to use them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlock.testing.fake_async_client import FakeAsyncLockClient
    from fairlock.testing.fake_client import FakeLockClient, used_by_locked_functions
    from fairlock.testing.fake_table import FakeTable
    from fairlock.testing.manual_clock import ManualClock, run_in_virtual_time

__all__ = [
    "FakeAsyncLockClient",
    "FakeLockClient",
    "FakeTable",
    "ManualClock",
    "run_in_virtual_time",
    "used_by_locked_functions",
]

_MODULES = {
    "FakeAsyncLockClient": "fake_async_client",
    "FakeLockClient": "fake_client",
    "FakeTable": "fake_table",
    "ManualClock": "manual_clock",
    "run_in_virtual_time": "manual_clock",
    "used_by_locked_functions": "fake_client",
}
"""Imported when first asked for: not everybody has the extra `async`."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
