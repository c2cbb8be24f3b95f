"""The service's handlers, each of which stops before one of its requests until a test lets it go.

The name of the lock says where: `gate/<operation>/<requests before it>/<any name>`. In the
directory GATES the handler leaves `<name>.entered` there, goes on once it finds `<name>.open`, and
leaves `<name>.left` when all is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lambdas import runtime as _runtime
from lambdas.acquire import handler as _acquire
from lambdas.release import handler as _release

Json = dict[str, Any]

_PAUSE_SECONDS = 0.02


_runtime_client = _runtime._client  # noqa: SLF001 - all clients of the handlers come from there


class Gate:
    """Before the request of an invocation whose number the lock's name tells."""

    def __init__(self, operation: str, lock_name: str) -> None:
        kind, of, requests, name = f"{lock_name}///".split("/")[:4]
        self._is_here = (kind, of) == ("gate", operation)
        self._path = Path(os.environ["GATES"]) / name
        self._requests = int(requests) if self._is_here else 0

    def pass_through(self) -> None:
        """Called before every request."""
        self._requests -= 1
        if not self._is_here or self._requests >= 0:
            return
        self._path.with_suffix(".entered").touch()
        while not self._path.with_suffix(".open").exists():
            time.sleep(_PAUSE_SECONDS)

    def leave(self) -> None:
        """Called at the end of the invocation."""
        if self._is_here:
            self._path.with_suffix(".left").touch()


class Gated:
    """A boto3 client whose requests all go through the gate of the invocation."""

    gate: Gate

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - a boto3 client
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self._inner, name)
        if name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            Gated.gate.pass_through()
            return attribute(**arguments)

        return call


_runtime._client = lambda service: Gated(_runtime_client(service))  # type: ignore[assignment]  # noqa: SLF001 - same


def _handle(operation: str, handler: Callable[..., Json], event: Json, context: object) -> Json:
    Gated.gate = gate = Gate(operation, event["lock_name"])
    try:
        return handler(event, context)
    finally:
        gate.leave()


acquire = partial(_handle, "acquire", _acquire)
release = partial(_handle, "release", _release)
