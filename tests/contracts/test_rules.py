"""One rule for a field: functions, clients, durable functions, guards and the command refuse alike.

What breaks a rule is refused by the name of the field, before anything is sent or made.
`tests/unit/wire/test_rules.py` tells more of what the functions refuse,
`tests/unit/cdk/test_guard_arguments.py` of guards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, cast
from unittest import mock

import pytest

from fairlock import LockClient
from fairlock.cli import main
from fairlock.cli.target import Target
from fairlock.errors import InvalidRequest
from fairlock.wire.requests import parse_acquire
from tests.contracts.client.drivers import Tasks, Threads, World, done
from tests.unit.durable.service import options

NAME = "must be a string of 1 to 512 bytes of UTF-8"
LIMIT = "must be a whole number from 1 to 100"
SECONDS = r"must be a (whole )?number of seconds"
LEASE = f"({SECONDS}|must be from 1 second to 12 hours)"
WAIT = f"({SECONDS}|must be from 1 s to 366 days)"
DATA = "must be a JSON object of at most 2048 bytes of compact UTF-8 and 32 levels, without NaN"
OWNER_NAME = "must be a string of at most 512 characters"
NO_NUMBERS: Final = (math.nan, math.inf, "60", True)

BROKEN: dict[str, list[tuple[Any, str]]] = {
    "name": [
        *((value, NAME) for value in ("", 7, None)),
        (" a", "must not begin or end with a space"),
        ("a\nb", r"must not contain the control character U\+000A at position 2"),
        ("a\u200bb", r"must not contain the invisible character U\+200B"),
        ("cafe\u0301", "must be in NFC"),
        ("x" * 513, "must have at most 512 bytes of UTF-8, and has 513"),
    ],
    "limit": [(value, LIMIT) for value in (0, 101, 1.5, True, "3", math.nan)],
    "lease": [(value, LEASE) for value in (0, 0.5, 43_201, *NO_NUMBERS)],
    "data": [(value, DATA) for value in ([1], "text", {"a": math.nan}, {"a": "x" * 2048})],
    "shared": [(value, "must be [Tt]rue or [Ff]alse") for value in ("yes", 1, None)],
    "owner_name": [(value, OWNER_NAME) for value in ("a\tb", "x" * 513, 7)],
    "max_wait": [(value, WAIT) for value in (-1, timedelta(days=367), *NO_NUMBERS)],
    "max_hold": [(value, WAIT) for value in (-5, 0, 0.5, *NO_NUMBERS)],
    "on_lost": [("beep", "must be a function")],
    "on_danger": [(True, "must be a function")],
    "fallback": [
        (value, "must be ") for value in ([60], timedelta(seconds=9), timedelta(hours=13))
    ],
}


async def ask_function(_world: World, fields: dict[str, Any]) -> None:
    names = {"name": "lock_name", "lease": "lease_seconds"}
    parse_acquire({names.get(field, field): value for field, value in fields.items()})


async def ask_client(world: World, fields: dict[str, Any]) -> None:
    await done(world.locks.acquire(**fields))


async def ask_durable(_world: World, fields: dict[str, Any]) -> None:
    options(**fields)


async def ask_guard(_world: World, fields: dict[str, Any]) -> None:
    from aws_cdk import App, Duration  # noqa: PLC0415 - starts Node

    from tests.unit.cdk.guard_forms import Cases  # noqa: PLC0415 - same

    names = {"name": "lock_name"}
    given = {names.get(field, field): value for field, value in fields.items()}
    if isinstance(lease := given.get("lease"), int | float) and not isinstance(lease, bool):
        given["lease"] = Duration.millis(lease * 1000)
    Cases(App(), "Cases").guard(**given)


async def ask_command(world: World, fields: dict[str, Any]) -> None:
    """`fairlock run` in this process, up to what it would print and end with."""

    def raise_error(_status: int, error: Exception) -> None:
        raise error

    def locks_of(_target: Target, **settings: Any) -> LockClient:  # noqa: ANN401 - a client's
        return LockClient("locks", client=cast("Any", world.table), **settings)

    given = {field: value for field, value in fields.items() if field != "name"}
    flags = [f"--{field.replace('_', '-')}={written(value)}" for field, value in given.items()]
    words = ["fairlock", "run", fields["name"], *flags, "--table=locks", "--", "true"]
    with (
        mock.patch("sys.argv", words),
        mock.patch.object(Target, "locks", locks_of),
        mock.patch("fairlock.cli.exit_codes.end", raise_error),
    ):
        try:
            main()
        except SystemExit as ended:
            assert ended.code == 0  # noqa: PT017 - the end of a command


def written(value: Any) -> str:  # noqa: ANN401 - of any type
    return json.dumps(value) if isinstance(value, dict) else str(value)


REQUEST: Final = {"name", "limit", "lease", "data", "shared", "owner_name"}
DOORS: dict[str, tuple[type[World], Callable[..., Any], set[str]]] = {
    "a function": (Threads, ask_function, REQUEST),
    "threads": (Threads, ask_client, BROKEN.keys() - {"fallback"}),
    "asyncio": (Tasks, ask_client, BROKEN.keys() - {"fallback"}),
    "a durable function": (
        Threads,
        ask_durable,
        BROKEN.keys() - {"owner_name", "on_lost", "on_danger"},
    ),
    "a guard": (Threads, ask_guard, {"name", "limit", "lease", "shared"}),
    "the command": (Threads, ask_command, {"name", "limit", "lease", "data", "owner_name"}),
}


def can_be_asked(door: str, field: str, value: Any) -> bool:  # noqa: ANN401 - of any type
    """A guard takes a lease as a Duration, and refuses other types in words of its own.

    A command takes texts: what its own parser refuses is told by tests/unit/cli/test_statuses.py.
    """
    if door == "a guard" and field == "lease":
        return value in {0, 43_201} and not isinstance(value, bool)
    if door == "the command":
        kind = {"limit": int, "lease": int}.get(field, str if field != "data" else dict)
        return isinstance(value, kind) and not isinstance(value, bool) and value != {"a": math.nan}
    return True


CASES = [
    pytest.param(door, field, value, rule, id=f"{door}-{field}-{str(value)[:12]!r}")
    for door, (_, _, fields) in DOORS.items()
    for field in BROKEN
    if field in fields
    for value, rule in BROKEN[field]
    if can_be_asked(door, field, value)
]


@pytest.mark.parametrize(("door", "field", "value", "rule"), CASES)
def test_what_breaks_a_rule_is_refused_by_name_and_nothing_is_sent(
    door: str,
    field: str,
    value: Any,  # noqa: ANN401 - of any type
    rule: str,
) -> None:
    kind, ask, _ = DOORS[door]
    world = kind()

    async def scene() -> None:
        with pytest.raises(InvalidRequest, match=rf"^\w+: {rule}") as refused:
            await ask(world, {"name": "a"} | {field: value})
        told = {"lock_name": "name", "lease_seconds": "lease"}
        assert told.get(refused.value.field, refused.value.field) == field
        assert world.table.requests == []

    world.play(scene())


@pytest.mark.parametrize("door", DOORS)
def test_what_keeps_all_rules_is_taken(door: str) -> None:
    """The control: each door takes the longest and the largest."""
    kind, ask, fields = DOORS[door]
    world = kind()
    good = {"name": "x" * 512, "limit": 100, "lease": 43_200, "data": {"a": "x" * 2000}}
    good |= {"owner_name": "x" * 512, "max_wait": 60, "max_hold": 50_000, "shared": False}

    world.play(ask(world, {field: value for field, value in good.items() if field in fields}))
