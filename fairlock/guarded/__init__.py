"""Writes that succeed only while their lock is held: guarded transactions and fencing tokens."""

from __future__ import annotations

from fairlock.guarded.conditions import FenceCondition, condition_check, fence_condition
from fairlock.guarded.guarded_writes import GuardedWrites

__all__ = ["FenceCondition", "GuardedWrites", "condition_check", "fence_condition"]
