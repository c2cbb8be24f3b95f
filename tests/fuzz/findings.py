"""What a fuzzed call must never do, and the search for it in all that was written meanwhile."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from random import Random
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.errors import FairlockError
from fairlock.testing.fake_table import MemoryTable

UNTYPED: Final = "untyped errors"
WRITES: Final = "writes on refusal"
IN_ERRORS: Final = "secrets in errors"
SHOWN: Final = "secrets in answers and reprs"
LOGGED: Final = "secrets in logs and metrics"
_MOST_KEPT: Final = 20


@dataclass
class Findings:
    """How many calls of a run ended in which way, its defects by kind, and the first of these."""

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(self.outcomes.values())

    def add(self, kind: str, example: str) -> None:
        self.defects[kind] += 1
        if len(self.examples) < _MOST_KEPT:
            self.examples.append(f"{kind}: {example}")

    def judge_error(self, error: Exception, call: str) -> None:
        """An error must have a type of ours, and show no secret in any of its texts."""
        self.outcomes[type(error).__name__] += 1
        if not isinstance(error, FairlockError):
            shown = "".join(traceback.format_exception(error))
            self.add(UNTYPED, f"{call} -> {shown}")
        for text in _texts(error):
            if leaks(text):
                self.add(IN_ERRORS, f"{call} -> {text}")

    def judge_output(self, output: StringIO, call: str) -> str:
        """Logs and metrics must show no secret. Takes and returns what was printed."""
        text = output.getvalue()
        output.seek(0)
        output.truncate()
        if leaks(text):
            self.add(LOGGED, f"{call} -> {text}")
        return text

    def figures(self) -> str:
        ways = ", ".join(f"{number:,} {way}" for way, number in self.outcomes.most_common())
        return f"{self.calls:,} calls ({ways})"


def _texts(error: BaseException) -> Iterator[str]:
    """All that a traceback shows of an error and of what it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        yield str(seen)
        yield repr(seen)
        yield str([value for name, value in vars(seen).items() if name != "holders"])
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


@contextmanager
def captured_log(stream: StringIO) -> Iterator[None]:
    """Writes our loggers' records of every level to a stream, with their tracebacks.

    boto3's own log at DEBUG shows whole requests, owner ids included; it is not ours.
    """
    logger = logging.getLogger("fairlock")
    handler, before = logging.StreamHandler(stream), (logger.handlers, logger.level)
    logger.handlers = [handler]  # The handlers' Powertools logger has the same name.
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.handlers = before[0]
        logger.setLevel(before[1])


Exceptions: Final[Any] = type(
    "Exceptions",
    (MemoryTable.exceptions,),
    {
        name: type(name, (ClientError,), {})
        for name in ("ExecutionDoesNotExist", "ResourceInUseException")
    },
)
"""Those of a client that is one of DynamoDB and of Step Functions."""


# Hostile values, and owner ids that are recognized wherever they turn up.

MARK: Final = "k4n4ry"
"""Every secret consists of it, so that a part of a secret is recognized as well."""
SECRETS: Final = tuple(f"{MARK * 4}-{number:04d}" for number in range(40))
_HASHES: Final = frozenset(
    make(secret.encode()).hexdigest()[:8]
    for secret in SECRETS
    for make in (hashlib.sha256, hashlib.sha1, hashlib.md5)
)
EXECUTIONS: Final = tuple(
    f"arn:aws:states:us-east-1:123456789012:execution:billing:run-{number}" for number in range(4)
)
LOCKS: Final = ("customer/1", "customer/2", "Zürich", "a#b", "LOCK#x")


def leaks(text: str) -> bool:
    """Whether text shows a part of a secret, or the hash of one."""
    return MARK in text.lower() or any(known in text for known in _HASHES)


def shown(value: object) -> str:
    """The value's literal, even if Python refuses to make it."""
    try:
        return repr(value)
    except (RecursionError, ValueError):
        return "a value that is too large to show"


def _nested(depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


_MAKERS: Final[tuple[Callable[[Random, str], object], ...]] = (
    lambda _random, _secret: None,
    lambda random, _secret: random.choice((True, False)),
    lambda random, _secret: random.choice((0, -1, 1, 2, 100, 101, 0.5, 1e308, -0.0)),
    lambda random, _secret: random.choice((math.nan, math.inf, -math.inf)),
    lambda random, _secret: random.choice((10**400, -(10**5000), 2**64)),
    lambda random, _secret: random.choice(("", " ", "x" * 600, "é" * 513, "1", "null")),
    lambda random, _secret: random.choice(("\ud800", "a\0b", "a\x9bb", "a\u202eb", "cafe\u0301")),
    lambda _random, secret: f"{secret}\n",
    lambda _random, secret: secret * 30,
    lambda _random, secret: json.dumps(json.dumps({"owner_id": secret}, indent=1)) + "\n",
    lambda _random, secret: {"owner_id": secret},
    lambda _random, secret: [secret, {"token": [secret]}],
    lambda random, secret: _nested(random.choice((1, 50, 500, 900)), secret),
    lambda _random, secret: secret.encode(),
    lambda _random, secret: {secret: secret},
    lambda _random, _secret: [],
)


def hostile(random: Random) -> Any:  # noqa: ANN401 - that is the point
    """A value that breaks most rules, often with a secret inside. No lock is named like it."""
    return random.choice(_MAKERS)(random, random.choice(SECRETS))
