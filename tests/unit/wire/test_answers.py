"""Answers as JSON: every shape of the contract, whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlock.errors import InvalidRequest
from fairlock.protocol.model import Grant, Holder
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import START_MS, ManualClock
from fairlock.wire import answers
from fairlock.wire.answers import acquire_answer, heartbeat_answer, list_answer, release_answer
from fairlock.wire.requests import parse_acquire, parse_heartbeat
from fairlock.wire.rules import callback_id_in, callback_token, is_durable, is_standard
from tests.support import acquire, release, store_over
from tests.support.bad_inputs import VALID_EXECUTION

MINE = "mine-owner-id-0123456789"
THEIRS = "their-owner-id-9876543210"
OWN: dict[str, Any] = {"lock_name": "customer/1", "owner_id": MINE}
GRANT = Grant(
    **OWN,
    fencing_token=START_MS * 1000 + 1,
    lease_ms=60_000,
    acquired_at_ms=START_MS,
    expires_at_ms=START_MS + 61_500,
    own_ms=58_800,
)
LEASE = {
    **OWN,
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
    execution_arn=VALID_EXECUTION,
)
BESIDE: dict[str, Any] = {"holders": (COMPETITOR,), "retry_after_seconds": 7}
REFUSAL = Refusal(**OWN, **BESIDE, reason=RefusalReason.HELD)
QUEUED = Queued(**OWN, **BESIDE, entered_at_ms=START_MS, position=3)
NOT_HELD, RELEASED = NotHeld(**OWN), Released(**OWN, held_ms=12)
AT = {"acquired_at": "2030-03-17T17:46:40.001Z", "expires_at": "2030-03-17T17:46:40.002Z"}
HELD_BY = {"reason": "HELD", "holders": [{"owner_name": "report-7", **AT}]}
REFUSED = {"acquired": False, **OWN, **HELD_BY, "retry_after_seconds": 7}
UNSURE = (
    "a lease is over, but Step Functions did not say whether its workflow still runs: still held"
)
ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a grant": (acquire_answer(GRANT), {"acquired": True, **LEASE}),
    "a repeated grant and a takeover look like any grant": (
        acquire_answer(replace(GRANT, repeated=True, taken_over=3)),
        {"acquired": True, **LEASE},
    ),
    "a refusal": (acquire_answer(REFUSAL), REFUSED),
    "a refusal of a lock that no one holds any more": (
        acquire_answer(replace(REFUSAL, reason=RefusalReason.ALREADY_RELEASED, holders=())),
        {**REFUSED, "reason": "ALREADY_RELEASED", "holders": []},
    ),
    "a refusal if Step Functions did not tell whether a holder lives": (
        acquire_answer(replace(REFUSAL, liveness_unknown=1)),
        {**REFUSED, "detail": UNSURE},
    ),
    "a place in the queue": (
        acquire_answer(QUEUED),
        {**REFUSED, "reason": "QUEUED", "ticket": START_MS, "position": 3},
    ),
    "a renewal": (heartbeat_answer(GRANT), {"renewed": True, **LEASE}),
    "no renewal": (heartbeat_answer(NOT_HELD), {"renewed": False, **OWN, "reason": "NOT_HELD"}),
    "a release": (release_answer(RELEASED), {"released": True, **OWN}),
    "a repeated one": (release_answer(replace(RELEASED, held_ms=None)), {"released": True, **OWN}),
    "no release": (release_answer(NOT_HELD), {"released": False, **OWN, "reason": "NOT_HELD"}),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_each_answer_is_as_the_contract_says_and_shows_no_owner_id_of_another(case: str) -> None:
    answer, expected = ANSWERS[case]
    assert answer == expected
    assert THEIRS not in json.dumps(answer)


def test_a_caller_that_is_to_ask_again_is_told_the_time_and_why() -> None:
    refusal = replace(REFUSAL, reason=RefusalReason.ASK_AGAIN, holders=(), called_at_ms=START_MS)
    answer = acquire_answer(replace(refusal, retry_after_seconds=1))
    assert "call again with this entered_at_ms" in answer.pop("detail")
    again = {"reason": "ASK_AGAIN", "entered_at_ms": START_MS, "holders": []}
    assert answer == {**REFUSED, **again, "retry_after_seconds": 1}


def test_lease_seconds_have_no_fraction_unless_they_need_one() -> None:
    shown = {60_000: "60", 1_000: "1", 1_500: "1.5", 1_001: "1.001", 43_200_000: "43200"}
    for lease_ms, text in shown.items():
        answer = acquire_answer(replace(GRANT, lease_ms=lease_ms))
        assert json.dumps(answer["lease_seconds"]) == text


def test_a_fencing_token_survives_readers_that_know_doubles_only() -> None:
    """JSONata and JavaScript keep integers up to 2^53."""
    year_2200_us = 7_258_118_400_000_000
    answer = acquire_answer(replace(GRANT, fencing_token=year_2200_us + 1))
    assert int(float(answer["fencing_token"])) == answer["fencing_token"] < 2**53


# Standard workflows and durable executions are told apart, in requests too.


DURABLE = (
    "arn:aws:lambda:us-east-1:123456789012:function:billing:$LATEST/durable-execution/"
    "order-123/9f7d84c9-ea3d-3ffc-b3e5-5ec51c34ffc9"
)
CALLBACK = "Q2FsbGJhY2s="
REQUEST: dict[str, Any] = {"lock_name": "a", "owner_id": "o" * 16}


OF_FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:billing"
NOT_DURABLE = [
    *(OF_FUNCTION, f"{OF_FUNCTION}:7"),
    *(DURABLE.replace(":$LATEST", version) for version in ("", ":prod")),
    *(DURABLE.replace("order-123/", ""), DURABLE.replace("123456789012", "12345")),
    *(f"{DURABLE}/more", f"{DURABLE}\n", VALID_EXECUTION),
]


def test_an_execution_of_each_version_is_durable_and_nothing_else() -> None:
    for version in ("$LATEST", "$LATEST.PUBLISHED", "7", "120"):
        arn = DURABLE.replace("$LATEST", version)
        assert (is_durable(arn), is_standard(arn)) == (True, False)
    for arn in NOT_DURABLE:
        assert (is_durable(arn), is_standard(arn)) == (False, arn == VALID_EXECUTION), arn


def test_a_callback_id_is_told_from_a_task_token() -> None:
    assert callback_id_in(callback_token(CALLBACK)) == CALLBACK
    assert callback_id_in(CALLBACK) is None


def test_a_durable_execution_waits_with_its_callback_and_a_workflow_with_its_token() -> None:
    for execution, kept in ((DURABLE, callback_token(CALLBACK)), (VALID_EXECUTION, CALLBACK)):
        request = parse_acquire({**REQUEST, "execution_arn": execution, "task_token": CALLBACK})
        assert (request.task_token, request.waits) == (kept, True)


@pytest.mark.parametrize("callback_id", ["not base64!", "=", "a" * 1025, callback_token(CALLBACK)])
def test_what_lambda_takes_for_no_callback_id_is_refused(callback_id: str) -> None:
    with pytest.raises(InvalidRequest, match="task_token: must be the id of a callback"):
        parse_acquire({**REQUEST, "execution_arn": DURABLE, "task_token": callback_id})


def test_a_durable_execution_has_no_heartbeat_state() -> None:
    with pytest.raises(InvalidRequest, match="execution_arn: must be the ARN of a Standard"):
        parse_heartbeat({**REQUEST, "execution_arn": DURABLE, "task_token": CALLBACK})


# The answer of a list: bounded in locks, bytes and time, and continued where it ended.


NAMES = [f"lock-{number}" for number in range(5)]


@pytest.fixture
def table(clock: ManualClock) -> MemoryTable:
    table = MemoryTable()
    store = store_over(table, clock)
    for name in NAMES:
        store.acquire(acquire("anna", lock_name=name, data=json.dumps({"x": "y" * 1_000})))
    return table


def pages(table: MemoryTable, **options: Any) -> list[list[str]]:  # noqa: ANN401 - of list_answer
    """The names of each answer, until there is none to go on after."""
    found: list[list[str]] = []
    after: str | None = None
    while True:
        locks = store_over(table, ManualClock()).list_locks("", after=after)
        answer = list_answer(locks, **{"free": False, "has_time": lambda: True, **options})
        found.append([lock["lock_name"] for lock in answer["locks"]])
        after = answer["after"]
        if after is None:
            return found


def test_a_large_table_is_told_in_several_answers_and_no_lock_is_lost_or_told_twice(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pages(table) == [NAMES]
    for bound, most in (("MOST_LOCKS", 2), ("MOST_BYTES", 2_000)):
        with monkeypatch.context() as patched:
            patched.setattr(answers, bound, most)
            assert pages(table) == [NAMES[:2], NAMES[2:4], NAMES[4:]]


def test_a_list_ends_in_time_though_it_finds_nothing(
    table: MemoryTable, clock: ManualClock
) -> None:
    store = store_over(table, clock)
    for name in NAMES:
        store.release(release("anna", lock_name=name))
    assert pages(table, has_time=lambda: False) == [[]] * 6


def test_a_malformed_lock_is_named_and_the_others_come(table: MemoryTable) -> None:
    table.items["LOCK#lock-1", "STATE"]["held"] = {"S": "nonsense"}
    found = store_over(table, ManualClock()).list_locks()
    answer = list_answer(found, free=False, has_time=lambda: True)
    assert answer["malformed"] == ["LOCK#lock-1"]
    assert len(answer["locks"]) == 4
