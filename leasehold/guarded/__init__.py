"""Writes that succeed only while their lock is held: guarded transactions and fencing tokens."""

from __future__ import annotations

from leasehold.guarded.condition_check import condition_check
from leasehold.guarded.fencing import FenceCondition, fence_condition
from leasehold.guarded.guarded_writes import GuardedWrites

__all__ = ["FenceCondition", "GuardedWrites", "condition_check", "fence_condition"]
