"""The service's handlers, each of which stops before one of its requests until a test lets it go.

The name of the lock says where: `gate/<operation>/<requests before it>/<any name>`. In the
directory GATES the handler leaves `<name>.entered` there, goes on once it finds `<name>.open`, and
leaves `<name>.left` when all is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lambdas import runtime as _runtime
from lambdas.acquire import handler as _acquire
from lambdas.release import handler as _release

Json = dict[str, Any]

_PAUSE_SECONDS = 0.02


class Gate:
    """Counts the requests of an invocation, and waits before one of them."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._requests = 0

    @contextmanager
    def standing(self, operation: str, lock_name: str) -> Iterator[None]:
        """During an invocation."""
        kind, _, rest = lock_name.partition("/")
        if kind != "gate" or not rest.startswith(f"{operation}/"):
            yield
            return
        _, requests, name = rest.split("/", 2)
        self._path, self._requests = Path(os.environ["GATES"]) / name, int(requests)
        try:
            yield
        finally:
            self._path.with_suffix(".left").touch()
            self._path = None

    def pass_through(self) -> None:
        """Called before every request."""
        self._requests -= 1
        if self._path is None or self._requests >= 0:
            return
        self._path.with_suffix(".entered").touch()
        while not self._path.with_suffix(".open").exists():
            time.sleep(_PAUSE_SECONDS)


class Gated:
    """A boto3 client whose requests all go through the gate."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - a boto3 client
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self._inner, name)
        if name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            _gate.pass_through()
            return attribute(**arguments)

        return call


_gate = Gate()
_client = _runtime._client  # noqa: SLF001 - all clients of the handlers come from there
_runtime._client = lambda service: Gated(_client(service))  # type: ignore[assignment]  # noqa: SLF001 - same


def acquire(event: Json, context: Any) -> Json:  # noqa: ANN401 - a LambdaContext
    """The acquire handler."""
    with _gate.standing("acquire", event["lock_name"]):
        answer: Json = _acquire(event, context)
        return answer


def release(event: Json, context: Any) -> Json:  # noqa: ANN401 - same
    """The release handler."""
    with _gate.standing("release", event["lock_name"]):
        answer: Json = _release(event, context)
        return answer
