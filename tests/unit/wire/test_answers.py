"""Answers as JSON: every shape of the contract, whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fairlock.protocol.model import Holder
from fairlock.protocol.outcomes import Grant, NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.wire.answers import acquire_answer, heartbeat_answer, release_answer
from tests.support import START_MS

MINE = "mine-owner-id-0123456789"
THEIRS = "their-owner-id-9876543210"
GRANT = Grant(
    lock_name="customer/1",
    owner_id=MINE,
    fencing_token=START_MS * 1000 + 1,
    lease_ms=60_000,
    acquired_at_ms=START_MS,
    expires_at_ms=START_MS + 61_500,
    own_ms=58_800,
)
GRANTED = {
    "acquired": True,
    "lock_name": "customer/1",
    "owner_id": MINE,
    "fencing_token": 1_900_000_000_000_001,
    "lease_seconds": 60,
    "acquired_at": "2030-03-17T17:46:40.000Z",
    "expires_in_seconds": 58.8,
}
COMPETITOR = Holder(
    owner_id=THEIRS,
    owner_name="report-7",
    acquired_at_ms=START_MS + 1,
    expires_at_ms=START_MS + 2,
    lease_ms=1_000,
    limit=1,
    revision=12,
    fencing_token=77,
    data='{"secret":true}',
    execution_arn="arn:aws:states:us-east-1:123456789012:execution:billing:run-1",
)
REFUSAL = Refusal(
    lock_name="customer/1",
    owner_id=MINE,
    reason=RefusalReason.HELD,
    holders=(COMPETITOR,),
    retry_after_seconds=7,
)
REFUSED = {
    "acquired": False,
    "lock_name": "customer/1",
    "owner_id": MINE,
    "reason": "HELD",
    "holders": [
        {
            "owner_name": "report-7",
            "acquired_at": "2030-03-17T17:46:40.001Z",
            "expires_at": "2030-03-17T17:46:40.002Z",
        }
    ],
    "retry_after_seconds": 7,
}


def test_a_grant() -> None:
    assert acquire_answer(GRANT) == GRANTED


def test_a_repeated_grant_and_a_takeover_look_like_any_grant() -> None:
    repeated = replace(GRANT, repeated=True, taken_over=3)
    assert acquire_answer(repeated) == GRANTED


def test_a_refusal_names_the_holders_but_never_their_owner_ids() -> None:
    answer = acquire_answer(REFUSAL)
    assert answer == REFUSED
    assert THEIRS not in json.dumps(answer)


def test_a_refusal_of_a_lock_that_nobody_holds_any_more() -> None:
    refusal = replace(REFUSAL, reason=RefusalReason.ALREADY_RELEASED, holders=())
    assert acquire_answer(refusal) == {**REFUSED, "reason": "ALREADY_RELEASED", "holders": []}


def test_a_caller_that_is_to_ask_again_is_told_the_time_and_why() -> None:
    refusal = Refusal(
        lock_name="customer/1",
        owner_id=MINE,
        reason=RefusalReason.ASK_AGAIN,
        called_at_ms=1_900_000_000_000,
    )
    answer = acquire_answer(refusal)
    assert "call again with this entered_at_ms" in answer.pop("detail")
    assert answer == {
        "acquired": False,
        "lock_name": "customer/1",
        "owner_id": MINE,
        "reason": "ASK_AGAIN",
        "entered_at_ms": 1_900_000_000_000,
        "holders": [],
        "retry_after_seconds": 1,
    }


def test_a_refusal_says_when_step_functions_did_not_tell_whether_a_holder_lives() -> None:
    refusal = replace(REFUSAL, liveness_unknown=1)
    assert acquire_answer(refusal) == {
        **REFUSED,
        "detail": "a lease is over, but Step Functions did not say whether its workflow still runs:"
        " still held",
    }


def test_a_place_in_the_queue() -> None:
    queued = Queued(
        lock_name="customer/1",
        owner_id=MINE,
        entered_at_ms=START_MS,
        position=3,
        holders=(COMPETITOR,),
        retry_after_seconds=5,
    )
    answer = acquire_answer(queued)
    assert answer == {
        **REFUSED,
        "reason": "QUEUED",
        "ticket": START_MS,
        "position": 3,
        "retry_after_seconds": 5,
    }
    assert THEIRS not in json.dumps(answer)


def test_a_renewal_and_its_refusal() -> None:
    renewal = Grant(
        lock_name="customer/1",
        owner_id=MINE,
        fencing_token=START_MS * 1000 + 1,
        lease_ms=60_000,
        acquired_at_ms=START_MS,
        expires_at_ms=START_MS + 61_500,
        own_ms=58_800,
    )
    granted = {name: value for name, value in GRANTED.items() if name != "acquired"}
    assert heartbeat_answer(renewal) == {"renewed": True, **granted}
    assert heartbeat_answer(NotHeld(lock_name="customer/1", owner_id=MINE)) == {
        "renewed": False,
        "lock_name": "customer/1",
        "owner_id": MINE,
        "reason": "NOT_HELD",
    }


@pytest.mark.parametrize("held_ms", [None, 12])
def test_a_release_first_or_repeated(held_ms: int | None) -> None:
    released = Released(lock_name="customer/1", owner_id=MINE, held_ms=held_ms)
    assert release_answer(released) == {
        "released": True,
        "lock_name": "customer/1",
        "owner_id": MINE,
    }


def test_the_refusal_of_a_release() -> None:
    assert release_answer(NotHeld(lock_name="customer/1", owner_id=MINE)) == {
        "released": False,
        "lock_name": "customer/1",
        "owner_id": MINE,
        "reason": "NOT_HELD",
    }


@pytest.mark.parametrize(
    ("lease_ms", "text"),
    [(60_000, "60"), (1_000, "1"), (1_500, "1.5"), (1_001, "1.001"), (43_200_000, "43200")],
)
def test_lease_seconds_have_no_fraction_unless_they_need_one(lease_ms: int, text: str) -> None:
    answer = acquire_answer(replace(GRANT, lease_ms=lease_ms))
    assert json.dumps(answer["lease_seconds"]) == text


def test_a_fencing_token_survives_readers_that_know_doubles_only() -> None:
    """JSONata and JavaScript keep integers up to 2^53."""
    year_2200_us = 7_258_118_400_000_000
    answer = acquire_answer(replace(GRANT, fencing_token=year_2200_us + 1))
    assert int(float(answer["fencing_token"])) == answer["fencing_token"] < 2**53
