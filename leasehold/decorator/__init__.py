"""`@locked`: a function that runs only while it holds a lock."""

from __future__ import annotations

from leasehold.decorator.locked import locked

__all__ = ["locked"]
