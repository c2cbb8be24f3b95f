"""The checker of histories: what a lock can have answered, and violations that were put in."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.histories.calls import Answer, Call, Kind
from tests.histories.checker import find_violation

DONE, REFUSED, UNKNOWN = Answer.DONE, Answer.REFUSED, Answer.UNKNOWN


def call(
    kind: Kind, owner: str, began: float, ended: float, answer: Answer, **fields: float
) -> Call:
    ended = math.inf if answer is UNKNOWN else ended
    return Call(kind=kind, owner=owner, answer=answer, began=began, ended=ended, **fields)  # type: ignore[arg-type]  # token is a whole number


def granted(owner: str, token: int, began: float, ended: float, until: float = math.inf) -> Call:
    return call(Kind.ACQUIRE, owner, began, ended, DONE, token=token, held_until=until)


def refused(owner: str, began: float, ended: float) -> Call:
    return call(Kind.ACQUIRE, owner, began, ended, REFUSED)


def lost(owner: str, began: float) -> Call:
    return call(Kind.ACQUIRE, owner, began, math.inf, UNKNOWN)


def renewed(
    owner: str, began: float, ended: float, *, answer: Answer = DONE, until: float = math.inf
) -> Call:
    return call(Kind.HEARTBEAT, owner, began, ended, answer, held_until=until)


def released(owner: str, began: float, ended: float, answer: Answer = DONE) -> Call:
    return call(Kind.RELEASE, owner, began, ended, answer)


def paused(began: float, ended: float, answer: Answer = DONE, *, limit: int | None = 0) -> Call:
    return replace(call(Kind.CEILING, f"operator {began}", began, ended, answer), limit=limit)


ANNA = [granted("anna", 1, 0, 1), released("anna", 4, 5)]
LEASE_ENDS = granted("anna", 1, 0, 1, until=4)
MOST_READERS = 3
READS, WRITES = replace(ANNA[0], limit=MOST_READERS), replace(ANNA[0], limit=1)

RIGHT: dict[str, tuple[list[Call], int]] = {
    "a reader beside a reader": (
        [READS, replace(granted("ben", 2, 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "a writer that is refused beside a reader": (
        [READS, replace(refused("ben", 2, 3), limit=1)],
        MOST_READERS,
    ),
    "one after the other": ([*ANNA, granted("ben", 2, 6, 7)], 1),
    "granted before the release is answered": ([*ANNA, granted("ben", 2, 2, 4.5)], 1),
    "two beside each other, of two permits": ([*ANNA, granted("ben", 2, 2, 3)], 2),
    "refused while another holds": ([*ANNA, refused("ben", 2, 3)], 1),
    "refused because of an acquire whose reply was lost": (
        [lost("anna", 0), refused("b", 2, 3)],
        1,
    ),
    "an acquire of unknown outcome that never happened": ([lost("a", 0), granted("b", 2, 3, 4)], 1),
    "a release of unknown outcome that happened": (
        [ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4)],
        1,
    ),
    "a release that is repeated after a lost reply": (
        [ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4), released("anna", 5, 6)],
        1,
    ),
    "granted after the end of the lease": ([LEASE_ENDS, granted("ben", 2, 3, 5)], 1),
    "a heartbeat that comes too late": (
        [LEASE_ENDS, granted("ben", 2, 4, 5), renewed("anna", 6, 7, answer=REFUSED)],
        1,
    ),
    "a lost reply, and the same token for the same owner": (
        [lost("anna", 0), granted("anna", 1, 2, 3), granted("anna", 1, 4, 5)],
        1,
    ),
}
RIGHT |= {
    "refused because of a lost acquire that came before a later grant": (
        [
            *ANNA,
            lost("ben", 5),
            granted("carl", 3, 6, 7),
            refused("dora", 8, 9),
            released("carl", 10, 11),
            granted("emil", 4, 12, 13),
        ],
        2,
    ),
    "refused while the lock is paused": ([*ANNA, paused(6, 7), refused("ben", 8, 9)], 1),
    "granted in the moment of a pause": ([*ANNA, paused(6, 9), granted("ben", 2, 7, 8)], 1),
    "granted after the pause": (
        [*ANNA, paused(6, 7), paused(8, 9, limit=None), granted("ben", 2, 10, 11)],
        1,
    ),
    "granted because a resume of unknown outcome happened": (
        [*ANNA, paused(6, 7), paused(8, 0, UNKNOWN, limit=None), granted("ben", 2, 10, 11)],
        1,
    ),
    "a holder of a paused lock renews": ([ANNA[0], paused(2, 3), renewed("anna", 4, 5)], 1),
}
WRONG: dict[str, tuple[list[Call], int]] = {
    "granted while the lock is paused": ([*ANNA, paused(6, 7), granted("ben", 2, 8, 9)], 1),
    "granted above a ceiling": (
        [ANNA[0], paused(2, 2.5, limit=1), granted("ben", 2, 3, 3.5)],
        2,
    ),
    "refused after the pause": (
        [*ANNA, paused(6, 7), paused(8, 9, limit=None), refused("ben", 10, 11)],
        1,
    ),
    "a writer beside a reader": (
        [READS, replace(granted("ben", 2, 2, 3), limit=1)],
        MOST_READERS,
    ),
    "a reader beside a writer": (
        [WRITES, replace(granted("ben", 2, 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "a reader that is refused beside a reader": (
        [READS, replace(refused("ben", 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "two inside": ([*ANNA, granted("ben", 2, 2, 3)], 1),
    "three inside, of two permits": (
        [*ANNA, granted("ben", 2, 2, 3), granted("carl", 3, 2, 3)],
        2,
    ),
    "the token goes back": (
        [granted("anna", 5, 0, 1), released("anna", 2, 3), granted("b", 4, 4, 5)],
        1,
    ),
    "a token used twice": ([*ANNA, granted("ben", 1, 6, 7)], 1),
    "another token for the same owner": ([granted("anna", 1, 0, 1), granted("anna", 2, 2, 3)], 1),
    "a release of another's lock": ([*ANNA, released("ben", 2, 3)], 1),
    "granted because another's release was obeyed": (
        [ANNA[0], released("ben", 2, 3, UNKNOWN), granted("carl", 2, 4, 5)],
        1,
    ),
    "a release that is refused while the owner holds": (
        [ANNA[0], released("anna", 2, 3, REFUSED)],
        1,
    ),
    "renewed after the release": ([*ANNA, renewed("anna", 6, 7)], 1),
    "granted again after the release": ([*ANNA, granted("anna", 1, 6, 7)], 1),
    "refused although the lock is free": ([*ANNA, refused("ben", 6, 7)], 1),
    "granted before the end of the lease": ([LEASE_ENDS, granted("ben", 2, 2, 3)], 1),
    "granted before the end of a renewed lease": (
        [LEASE_ENDS, renewed("anna", 2, 3, until=9), granted("ben", 2, 5, 6)],
        1,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_a_lock_can_have_is_accepted(name: str) -> None:
    history, limit = RIGHT[name]
    assert find_violation(history, limit=limit) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_violation_is_found(name: str) -> None:
    history, limit = WRONG[name]
    assert find_violation(history, limit=limit) is not None


def test_a_refusal_of_a_free_lock_is_right_only_where_someone_may_wait() -> None:
    history = [refused("ben", 0, 1)]
    assert find_violation(history, limit=1) is not None
    assert find_violation(history, limit=1, with_waiters=True) is None


def test_the_violation_names_the_first_answer_that_nothing_explains() -> None:
    second = granted("ben", 2, 2, 3)
    violation = find_violation([*ANNA, second, granted("carl", 3, 6, 7)], limit=1)
    assert violation is not None
    assert violation.call == second
