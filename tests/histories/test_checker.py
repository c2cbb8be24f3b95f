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


def case(*history: Call, limit: int = 1) -> tuple[list[Call], int]:
    """A history of a lock with this limit."""
    return [*history], limit


RIGHT = {
    "a reader beside a reader": case(
        READS, replace(granted("ben", 2, 2, 3), limit=MOST_READERS), limit=MOST_READERS
    ),
    "a writer that is refused beside a reader": case(
        READS, replace(refused("ben", 2, 3), limit=1), limit=MOST_READERS
    ),
    "one after the other": case(*ANNA, granted("ben", 2, 6, 7)),
    "granted before the release is answered": case(*ANNA, granted("ben", 2, 2, 4.5)),
    "two beside each other, of two permits": case(*ANNA, granted("ben", 2, 2, 3), limit=2),
    "refused while another holds": case(*ANNA, refused("ben", 2, 3)),
    "refused because of an acquire whose reply was lost": case(lost("anna", 0), refused("b", 2, 3)),
    "an acquire of unknown outcome that never happened": case(lost("a", 0), granted("b", 2, 3, 4)),
    "a release of unknown outcome that happened": case(
        ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4)
    ),
    "a release that is repeated after a lost reply": case(
        ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4), released("anna", 5, 6)
    ),
    "granted after the end of the lease": case(LEASE_ENDS, granted("ben", 2, 3, 5)),
    "a heartbeat that comes too late": case(
        LEASE_ENDS, granted("ben", 2, 4, 5), renewed("anna", 6, 7, answer=REFUSED)
    ),
    "a lost reply, and the same token for the same owner": case(
        lost("anna", 0), granted("anna", 1, 2, 3), granted("anna", 1, 4, 5)
    ),
    "refused because of a lost acquire that came before a later grant": case(
        *ANNA,
        lost("ben", 5),
        granted("carl", 3, 6, 7),
        refused("dora", 8, 9),
        released("carl", 10, 11),
        granted("emil", 4, 12, 13),
        limit=2,
    ),
    "refused while the lock is paused": case(*ANNA, paused(6, 7), refused("ben", 8, 9)),
    "granted in the moment of a pause": case(*ANNA, paused(6, 9), granted("ben", 2, 7, 8)),
    "granted after the pause": case(
        *ANNA, paused(6, 7), paused(8, 9, limit=None), granted("ben", 2, 10, 11)
    ),
    "granted because a resume of unknown outcome happened": case(
        *ANNA, paused(6, 7), paused(8, 0, UNKNOWN, limit=None), granted("ben", 2, 10, 11)
    ),
    "a holder of a paused lock renews": case(ANNA[0], paused(2, 3), renewed("anna", 4, 5)),
}
WRONG = {
    "granted while the lock is paused": case(*ANNA, paused(6, 7), granted("ben", 2, 8, 9)),
    "granted above a ceiling": case(
        ANNA[0], paused(2, 2.5, limit=1), granted("ben", 2, 3, 3.5), limit=2
    ),
    "refused after the pause": case(
        *ANNA, paused(6, 7), paused(8, 9, limit=None), refused("ben", 10, 11)
    ),
    "a writer beside a reader": case(
        READS, replace(granted("ben", 2, 2, 3), limit=1), limit=MOST_READERS
    ),
    "a reader beside a writer": case(
        WRITES, replace(granted("ben", 2, 2, 3), limit=MOST_READERS), limit=MOST_READERS
    ),
    "a reader that is refused beside a reader": case(
        READS, replace(refused("ben", 2, 3), limit=MOST_READERS), limit=MOST_READERS
    ),
    "two inside": case(*ANNA, granted("ben", 2, 2, 3)),
    "three inside, of two permits": case(
        *ANNA, granted("ben", 2, 2, 3), granted("carl", 3, 2, 3), limit=2
    ),
    "the token goes back": case(
        granted("anna", 5, 0, 1), released("anna", 2, 3), granted("b", 4, 4, 5)
    ),
    "a token used twice": case(*ANNA, granted("ben", 1, 6, 7)),
    "another token for the same owner": case(granted("anna", 1, 0, 1), granted("anna", 2, 2, 3)),
    "a release of another's lock": case(*ANNA, released("ben", 2, 3)),
    "granted because another's release was obeyed": case(
        ANNA[0], released("ben", 2, 3, UNKNOWN), granted("carl", 2, 4, 5)
    ),
    "a release that is refused while the owner holds": case(
        ANNA[0], released("anna", 2, 3, REFUSED)
    ),
    "renewed after the release": case(*ANNA, renewed("anna", 6, 7)),
    "granted again after the release": case(*ANNA, granted("anna", 1, 6, 7)),
    "refused although the lock is free": case(*ANNA, refused("ben", 6, 7)),
    "granted before the end of the lease": case(LEASE_ENDS, granted("ben", 2, 2, 3)),
    "granted before the end of a renewed lease": case(
        LEASE_ENDS, renewed("anna", 2, 3, until=9), granted("ben", 2, 5, 6)
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
