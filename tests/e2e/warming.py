"""Execution environments made in good time: a cold start costs a second of a processor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment

_COLD_STARTS_AT_ONCE: Final = 3
_NOBODY: Final = {"lock_name": "warm-up", "owner_id": "no one at all..."}


def warm_up(
    deployment: Deployment,
    *,
    environments: int,
    operations: Sequence[str] = ("Acquire", "Release"),
) -> None:
    """Makes so many environments for each operation, a few at a time.

    All cold starts at once could take a busy machine longer than the functions' timeouts.
    """
    with ThreadPoolExecutor(environments) as pool:
        for operation in operations:
            invoke = partial(deployment.invoke, operation, **_NOBODY)
            for callers in range(_COLD_STARTS_AT_ONCE, environments + 1, _COLD_STARTS_AT_ONCE):
                for call in [pool.submit(invoke) for _ in range(callers)]:
                    call.result(LONGEST_WAIT_SECONDS)
