"""Random histories of a few calls: what a true lock answers, mostly changed in places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from tests.histories.calls import Answer, Call, Kind

_LEASES = (1, 2, math.inf)


_READERS: Final = 3


def small_histories(
    number: int, *, seed: int, writers: bool = False
) -> Iterator[tuple[list[Call], int]]:
    """So many histories, each with its limit; or with readers and writers."""
    random = Random(seed)  # noqa: S311 - no secret
    for _ in range(number):
        limit = _READERS if writers else random.choice((1, 1, 2))
        history = _true_history(random, limit, writers=writers)
        for _ in range(random.randrange(4)):
            history = _changed(random, history)
        yield history, limit


def _true_history(random: Random, limit: int, *, writers: bool) -> list[Call]:
    """Calls of a few owners, whose moments are 1, 2, 3 …, each with some time before and after."""
    holders: dict[str, float] = {}
    own = {f"owner {n}": random.choice((1, limit)) if writers else limit for n in (1, 2, 3)}
    history: list[Call] = []
    highest = 10
    for moment in range(1, random.randint(4, 7)):
        for owner, until in list(holders.items()):
            if until <= moment and random.random() < 0.5:
                del holders[owner]
        owner = f"owner {random.randint(1, 3)}"
        asked = any(call.owner == owner for call in history)
        kind = random.choice((Kind.HEARTBEAT, Kind.RELEASE)) if asked else Kind.ACQUIRE
        until, token = moment + random.choice(_LEASES), None
        most = min(own[each] for each in (owner, *holders))
        right = owner in holders or (kind is Kind.ACQUIRE and len(holders) < most)
        if kind is Kind.ACQUIRE and right:
            highest = token = highest + random.randint(1, 2)
        if kind is Kind.RELEASE:
            holders.pop(owner, None)
        elif right:
            holders[owner] = max(until, holders.get(owner, 0.0))
        call = Call(
            kind=kind,
            owner=owner,
            answer=Answer.DONE if right else Answer.REFUSED,
            began=moment - random.choice((0, 0, 1)),
            ended=moment + random.choice((0, 0, 1)),
            token=token,
            held_until=until,
            limit=own[owner] if writers and kind is Kind.ACQUIRE else None,
        )
        history.append(_forgotten(call) if random.random() < 0.15 else call)
    return history


def _forgotten(call: Call) -> Call:
    """The call, as one whose answer was lost."""
    return replace(call, answer=Answer.UNKNOWN, ended=math.inf, token=None, held_until=math.inf)


def _changed(random: Random, history: list[Call]) -> list[Call]:
    """The history with one call changed, which may make it wrong."""
    at = random.randrange(len(history))
    call, other = history[at], random.choice(history)
    match random.randrange(4):
        case 0 if call.token is not None:
            change = replace(call, token=call.token + random.choice((-2, -1, 1, 2)))
        case 1 if call.token is not None and other.token is not None:
            change = replace(call, token=other.token)
        case 2 if call.answer is Answer.DONE:
            change = replace(call, answer=Answer.REFUSED, token=None)
        case 2 if call.answer is Answer.REFUSED and call.kind is not Kind.ACQUIRE:
            change = replace(call, answer=Answer.DONE)
        case _ if call.answer is not Answer.UNKNOWN:
            moved = random.choice((-2, -1, 1, 2))
            change = replace(call, began=call.began + moved, ended=call.ended + moved)
        case _:
            change = call
    return [*history[:at], change, *history[at + 1 :]]
