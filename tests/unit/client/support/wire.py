"""Clients at the embedded AWS, and what they send over the wire, retries included."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from testbed.localaws import LocalAws

_TARGET = "X-Amz-Target"


@dataclass
class Wire:
    """Every request of a client, by the name of its operation."""

    sent: list[str] = field(default_factory=list)

    def tap(self, client: Any) -> Any:  # noqa: ANN401 - a boto3 client
        """Remembers what this client sends from now on."""
        client.meta.events.register("before-send.dynamodb.*", self._remember)
        return client

    def _remember(self, request: Any, **_: Any) -> None:  # noqa: ANN401 - botocore's
        target = request.headers[_TARGET]
        text = target.decode() if isinstance(target, bytes) else target
        self.sent.append(text.rpartition(".")[2])


def dynamodb_of(aws: LocalAws, wire: Wire | None = None) -> Any:  # noqa: ANN401 - a boto3 client
    """A DynamoDB client of its own, with room for heartbeats; its requests are remembered."""
    client = aws.client("dynamodb", max_pool_connections=40)
    return client if wire is None else wire.tap(client)


@dataclass
class Together:
    """Runs something in several threads that begin at the same moment."""

    errors: list[BaseException] = field(default_factory=list)

    def run(self, *actions: Any) -> None:  # noqa: ANN401 - functions without arguments
        barrier = threading.Barrier(len(actions))
        threads = [threading.Thread(target=self._call, args=(barrier, act)) for act in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]

    def _call(self, barrier: threading.Barrier, action: Any) -> None:  # noqa: ANN401 - same
        try:
            barrier.wait(30)
            action()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self.errors.append(error)
