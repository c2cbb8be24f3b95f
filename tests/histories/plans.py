"""The plans of a round: tries, waiters, semaphores, and holders that are never heard of again."""

from __future__ import annotations

from typing import Final

from tests.histories.runs import Plan

SMALL: Final = {
    "tries": Plan(threads=4, turns=15),
    "tries, three permits": Plan(threads=6, turns=15, limit=3),
    "tries of readers and writers": Plan(threads=6, turns=15, readers=0.7),
    "waiters": Plan(threads=4, turns=4, max_wait=20, lease=3),
    "waiters, two permits": Plan(threads=4, turns=4, limit=2, max_wait=20, lease=3),
    "readers and writers that wait": Plan(threads=5, turns=4, max_wait=20, lease=3, readers=0.7),
    "holders that die": Plan(threads=2, turns=2, max_wait=20, lease=1, dies=0.3),
}
LARGE: Final = {
    "tries": Plan(threads=4, turns=150),
    "tries, three permits": Plan(threads=4, turns=50, limit=3),
    "waiters": Plan(threads=4, turns=10, max_wait=30, lease=3),
    "waiters, five permits": Plan(threads=5, turns=10, limit=5, max_wait=30, lease=3),
    "readers and writers that wait": Plan(threads=5, turns=10, max_wait=30, lease=3, readers=0.7),
    "holders that die": Plan(threads=2, turns=2, max_wait=30, lease=1, dies=0.3),
    "long holds": Plan(threads=1, turns=2, max_wait=60, lease=10, beats=30),
}
"""Of each of two processes."""
