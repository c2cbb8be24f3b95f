"""The embedded AWS, with one durable function that has all handlers."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from testbed.conformance.engine import LONGEST_SECONDS, event_of
from testbed.localaws import LocalAws

_PACKAGE: Final = Path(__file__).parent


class EmbeddedAws:
    """The `Engine`, for many executions at a time."""

    def __init__(self, aws: LocalAws) -> None:
        self.client = aws.client("lambda", retries={"max_attempts": 0}, read_timeout=70)
        self._functions: dict[int, str] = {}
        self._mutex = threading.Lock()

    def start(
        self, requirement: str, value: Any, notes: Path, *, longest: int = LONGEST_SECONDS
    ) -> str:
        """Starts an execution of a requirement's handler, which times out; answers its ARN."""
        answer = self.client.invoke(
            FunctionName=self._function(longest),
            Qualifier="$LATEST",
            InvocationType="Event",
            Payload=json.dumps(event_of(requirement, value, notes)),
        )
        return str(answer["DurableExecutionArn"])

    def _function(self, longest: int) -> str:
        """The timeout of an execution belongs to its function."""
        with self._mutex:
            if longest not in self._functions:
                name = f"conformance-{longest}"
                self.client.create_function(
                    FunctionName=name,
                    Runtime="python3.13",
                    Handler="testbed.conformance.handlers.handler",
                    Role="arn:aws:iam::000000000000:role/conformance",
                    Code={"ZipFile": _package()},
                    Timeout=60,
                    DurableConfig={"ExecutionTimeout": longest},
                )
                self._functions[longest] = name
            return self._functions[longest]


@contextmanager
def embedded_aws(without: Sequence[str] = ()) -> Iterator[EmbeddedAws]:
    """An embedded AWS that ends with the block, without the named corrections."""
    with LocalAws(without=without) as aws:
        yield EmbeddedAws(aws)


def _package() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        packages = [_PACKAGE.parent / "__init__.py", _PACKAGE / "__init__.py"]
        for source in sorted([*packages, *_PACKAGE.glob("handlers/*.py")]):
            files.write(source, source.relative_to(_PACKAGE.parents[1]))
    return archive.getvalue()
