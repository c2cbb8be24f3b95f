"""Arguments that break a rule, of each call: refused by name, before anything is sent.

What all doors refuse alike is in tests/contracts/test_rules.py.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

import pytest

from fairlock import InvalidRequest
from fairlock.wire.rules import HIGHEST_VERSION
from tests.contracts.client.drivers import World, done, inside
from tests.support import HOLDER

SECRET: Final = "0123456789abcdef"
FORCE: Final = {"name": "a", "fencing_token": 7, "reason": "it hangs"}
LIMIT: Final = {"name": "a", "limit": 3, "reason": "it hangs"}
TURN: Final = {"name": "a", "rate": (10, 60)}
PAIR: Final = ["ben", "anna"]
VERSION = "only_newest: must be true, or the version"
HOLD = "max_hold: must be a number of seconds, at least 40 with a lease of 60 s"
SEVERAL = "names: must be a list of 1 to 20 lock names; for one lock, use hold"
OUTLAST = "max_hold: must be longer than max_wait"
ONE = "name: must be one name; "
TURNS: Final[dict[str, list[Any]]] = {
    "rate": [(0, 60), (10, 0), (10, math.nan), (10, "minute"), (10, 60, 1), 10, "10/60"],
    "burst": [0, 1.5, True],
    "max_wait": [-1, "long", timedelta(days=8)],
    "name": ["", 7],
}
CASES: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("force_release", {**FORCE, "name": ""}, "name: "),
    ("force_release", {**FORCE, "fencing_token": SECRET}, "fencing_token: "),
    ("force_release", {**FORCE, "fencing_token": 0}, "fencing_token: "),
    ("force_release", {**FORCE, "fencing_token": True}, "fencing_token: "),
    ("force_release", {**FORCE, "fencing_token": None}, "holder: "),
    ("force_release", {**FORCE, "holder": HOLDER}, "holder: "),
    ("force_release", {**FORCE, "holder": 7, "fencing_token": None}, "holder: "),
    ("force_release", {**FORCE, "holder": SECRET, "fencing_token": None}, "holder: "),
    ("force_release", {**FORCE, "reason": ""}, "reason: must tell why"),
    ("force_release", {**FORCE, "reason": "a\nb"}, "reason: "),
    ("force_release", {**FORCE, "reason": "x" * 513}, "reason: "),
    ("force_release", {**FORCE, "requested_by": ""}, "requested_by: "),
    ("force_release", {**FORCE, "requested_by": "x" * 257}, "requested_by: "),
    ("set_limit", {**LIMIT, "limit": 0}, "limit: must be at least 1; to let no one hold the lock"),
    ("set_limit", {**LIMIT, "limit": 101}, "limit: must be a whole number from 1 to 100"),
    ("set_limit", {**LIMIT, "limit": True}, "limit: must be a whole number"),
    ("set_limit", {**LIMIT, "reason": ""}, "reason: must tell why"),
    ("pause", {"name": "a", "reason": ""}, "reason: must tell why"),
    ("resume", {"name": "a", "reason": ""}, "reason: must tell why"),
    ("set_limit", {**LIMIT, "requested_by": "a\nb"}, "requested_by: must tell who"),
    ("set_limit", {**LIMIT, "name": ""}, "name: "),
    ("empty_queue", {"name": ""}, "name: "),
    ("adopt", {"name": " a", "owner_id": SECRET}, "name: "),
    ("adopt", {"name": "a", "owner_id": "short"}, "owner_id: "),
    ("adopt", {"name": "a", "owner_id": SECRET, "lease": 0}, "lease: "),
    ("adopt", {"name": "a", "owner_id": SECRET, "on_lost": 7}, "on_lost: "),
    ("adopt", {"name": "a", "owner_id": SECRET, "on_danger": 7}, "on_danger: "),
    *(
        ("pace", {**TURN, field: value}, f"{field}: ")
        for field, values in TURNS.items()
        for value in values
    ),
    *(
        ("acquire", {"name": "a", "only_newest": wrong}, VERSION)
        for wrong in (-1, 1.5, "7", None, HIGHEST_VERSION + 1, math.nan)
    ),
    ("acquire", {"name": "a", "only_newest": 7, "shared": True}, "only_newest: must be left out"),
    *(
        (call, {"name": "a", "max_hold": wrong}, HOLD)
        for call in ("acquire", "try_acquire", "hold")
        for wrong in (39.9, math.inf, timedelta(seconds=30), 10**400)
    ),
    *(
        ("hold", {"name": "a", "reentrant": wrong}, "reentrant: must be True or False")
        for wrong in (None, 1, "yes")
    ),
    *(
        ("hold_all", {"names": wrong}, SEVERAL)
        for wrong in ("anna", [], [str(number) for number in range(21)], {"anna", "ben"})
    ),
    ("hold_all", {"names": ["anna", "anna"]}, "names: must have each lock once (got 'anna')"),
    ("hold_all", {"names": ["anna", " ben"]}, "names: must not begin or end with a space"),
    ("hold_all", {"names": ["anna", 7]}, "names: must be a string of 1 to 512 bytes"),
    # Several locks need a max_hold that outlasts the wait for the others.
    ("hold_all", {"names": PAIR, "max_hold": 100}, f"{OUTLAST} (120 s)"),
    ("hold_all", {"names": PAIR, "max_hold": 600, "max_wait": 600}, f"{OUTLAST} (600 s)"),
    ("acquire", {"name": PAIR}, ONE),
    ("try_acquire", {"name": PAIR}, ONE),
    ("release", {"name": PAIR, "owner_id": SECRET}, ONE),
]


async def make(client: Any, call: str, given: dict[str, Any]) -> None:  # noqa: ANN401 - of either kind
    made = getattr(client, call)(**given)
    if call.startswith("hold"):
        async with inside(made):
            pytest.fail("it began")
    await done(made)


@pytest.mark.parametrize(("call", "given", "told"), CASES, ids=[told for _, _, told in CASES])
async def test_a_wrong_argument_is_refused_by_name_and_nothing_is_sent(
    world: World, call: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await make(world.locks, call, given)
    assert str(refused.value).startswith(told)
    assert refused.value.field == told.partition(":")[0]
    assert SECRET not in str(refused.value)
    assert world.table.requests == []
