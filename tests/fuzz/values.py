"""Hostile values, and owner ids that are recognized wherever they turn up."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

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


def _twice_encoded(secret: str) -> str:
    return json.dumps(json.dumps({"owner_id": secret}, indent=1)) + "\n"


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
    lambda _random, secret: _twice_encoded(secret),
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
