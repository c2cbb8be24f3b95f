"""With the setting LOCALAWS_FEW_ENVIRONMENTS an invocation waits a moment for a busy environment.

AWS: an invocation that finds all environments of its function busy gets a new one, or one that
becomes free before the new one is ready (Lambda developer guide, "Understanding the Lambda
execution environment lifecycle"). Starting environments costs the caller's machine nothing.

Emulator: always starts a new one, on this machine: a burst of invocations that take milliseconds
costs seconds of it, by which the next burst is larger.

This: where the setting is given, an invocation of a function that has been known to answer quickly
waits up to a second for an environment of it. Without the setting nothing is changed.
"""

import os
import time
from typing import Any

from ministack.core import lambda_runtime
from ministack.services import lambda_svc

_QUICK_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.01


def apply() -> None:
    """Wait before an environment is started."""
    if not os.environ.get("LOCALAWS_FEW_ENVIRONMENTS"):
        return
    acquire, release = lambda_svc.acquire_worker, lambda_svc.release_worker
    quickest: dict[str, float] = {}

    def acquire_worker(
        name: str, config: dict[str, Any], code: bytes, qualifier: str = "$LATEST", **more: Any
    ) -> Any:
        key = lambda_runtime._worker_key(name, config, qualifier)
        if quickest.get(key, _QUICK_SECONDS) < _QUICK_SECONDS:
            _wait_for_one(key)
        worker, reason = acquire(name, config, code, qualifier=qualifier, **more)
        if worker is not None:
            worker.localaws_lease = (key, time.monotonic())
        return worker, reason

    def release_worker(worker: Any) -> None:
        if worker is not None and hasattr(worker, "localaws_lease"):
            key, since = worker.localaws_lease
            quickest[key] = min(quickest.get(key, _QUICK_SECONDS), time.monotonic() - since)
        release(worker)

    lambda_svc.acquire_worker = acquire_worker
    lambda_svc.release_worker = release_worker


def _wait_for_one(key: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        environments = list(lambda_runtime._workers.get(key, ()))
        if not environments or any(not environment.in_use for environment in environments):
            return
        time.sleep(_PAUSE_SECONDS)
