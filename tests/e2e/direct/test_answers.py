"""Direct invocation, as the contract documents it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from fairlock.clock import over_at_ms, stored_end_ms
from tests.e2e.deployment import wait_until
from tests.e2e.direct.functions import Functions, unique
from tests.support.bad_inputs import ACQUIRES, HEARTBEATS, NAMED, NO_OBJECTS, RELEASES, BadInput

HOURS_48 = 48 * 3600


def epoch_ms(shown: str) -> int:
    assert len(shown) == len("2030-01-31T09:15:00.250Z")
    assert shown.endswith("Z")
    return round(datetime.fromisoformat(shown).timestamp() * 1000)


def test_acquire_heartbeat_and_release_answer_in_the_documented_shapes(
    functions: Functions,
) -> None:
    named = {"lock_name": unique("shapes"), "owner_id": unique("owner")}
    before_ms = time.time_ns() // 1_000_000
    granted = functions.ask(
        "acquire", {**named, "owner_name": "anna", "lease_seconds": 30, "data": {"why": "é"}}
    )
    after_ms = time.time_ns() // 1_000_000
    token, acquired_at = granted["fencing_token"], granted["acquired_at"]
    assert granted == {
        "acquired": True,
        **named,
        "fencing_token": token,
        "lease_seconds": 30,
        "acquired_at": acquired_at,
        "expires_in_seconds": granted["expires_in_seconds"],
    }
    assert before_ms <= epoch_ms(acquired_at) <= after_ms
    assert 15 <= granted["expires_in_seconds"] < 30, "less than the lease, and at least half"
    assert token == epoch_ms(acquired_at) * 1000 + 1

    renewed = functions.ask("heartbeat", {**named, "lease_seconds": 90.5})
    assert renewed == {
        "renewed": True,
        **named,
        "fencing_token": token,
        "lease_seconds": 90.5,
        "acquired_at": acquired_at,
        "expires_in_seconds": renewed["expires_in_seconds"],
    }
    assert 45.25 <= renewed["expires_in_seconds"] < 90.5
    assert functions.ask("release", named) == {"released": True, **named}


def test_refusals_answer_in_the_documented_shapes(functions: Functions) -> None:
    lock_name = unique("refusals")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}
    granted = functions.ask("acquire", {**anna, "owner_name": "anna"})
    refused = functions.invoke("acquire", ben)
    [holder] = refused.payload["holders"]
    assert refused.payload == {
        "acquired": False,
        **ben,
        "reason": "HELD",
        "holders": [
            {
                "owner_name": "anna",
                "acquired_at": granted["acquired_at"],
                "expires_at": holder["expires_at"],
            }
        ],
        "retry_after_seconds": refused.payload["retry_after_seconds"],
    }
    stored_ms = stored_end_ms(epoch_ms(granted["acquired_at"]), 60_000)
    assert epoch_ms(holder["expires_at"]) == stored_ms
    assert refused.payload["retry_after_seconds"] in (1, 2)
    not_held = {**ben, "reason": "NOT_HELD"}
    assert functions.ask("heartbeat", ben) == {"renewed": False, **not_held}
    assert functions.ask("release", ben) == {"released": False, **not_held}
    functions.ask("release", anna)
    late = functions.ask("acquire", anna)
    assert (late["acquired"], late["reason"], late["holders"]) == (False, "ALREADY_RELEASED", [])


def test_an_invocation_that_comes_late_is_told_when_to_say_that_it_was_made(
    functions: Functions,
) -> None:
    lock_name = unique("late")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}
    late = {**anna, "entered_at_ms": time.time_ns() // 1_000_000 - 5_000}
    for owner in (anna, ben):
        assert functions.ask("acquire", owner)["acquired"]
        functions.ask("release", owner)
    refused = functions.ask("acquire", late)
    shown = {name: refused.pop(name) for name in ("detail", "entered_at_ms")}
    assert refused == {
        "acquired": False,
        **anna,
        "reason": "ASK_AGAIN",
        "holders": [],
        "retry_after_seconds": 1,
    }
    assert shown["detail"].startswith("by AWS's clock an owner has left the lock since")
    again = {**anna, "entered_at_ms": shown["entered_at_ms"]}
    assert functions.ask("acquire", again)["acquired"]
    functions.ask("release", anna)
    unprotected = functions.ask("acquire", ben)  # It does not say when it was made.
    assert unprotected["acquired"] is True
    functions.ask("release", ben)


def test_an_owner_id_is_made_for_a_caller_who_brings_none(functions: Functions) -> None:
    lock_name = unique("anonymous")
    granted = functions.ask("acquire", {"lock_name": lock_name})
    named = {"lock_name": lock_name, "owner_id": granted["owner_id"]}
    assert functions.ask("release", named) == {"released": True, **named}


def test_repeated_calls_get_the_same_answers_and_change_nothing(functions: Functions) -> None:
    named = {"lock_name": unique("repeats"), "owner_id": unique("owner")}
    granted = functions.ask("acquire", named)
    item = functions.item(named["lock_name"])
    repeated = functions.ask("acquire", named)
    # The only thing that a repeat changes is how much of the lease is left.
    assert repeated.pop("expires_in_seconds") <= granted.pop("expires_in_seconds")
    assert repeated == granted
    assert functions.item(named["lock_name"]) == item
    released = functions.ask("release", named)
    item = functions.item(named["lock_name"])
    assert functions.ask("release", named) == released == {"released": True, **named}
    assert functions.item(named["lock_name"]) == item


def test_who_was_taken_over_can_neither_renew_nor_release(functions: Functions) -> None:
    lock_name = unique("stale")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}
    first = functions.ask("acquire", {**anna, "lease_seconds": 1})
    answers: list[dict[str, Any]] = []

    def ben_has_it() -> bool:
        answers.append(functions.ask("acquire", ben))
        return bool(answers[-1]["acquired"])

    wait_until(ben_has_it, seconds=10)
    taken_ms = epoch_ms(answers[-1]["acquired_at"])
    stored_ms = stored_end_ms(epoch_ms(first["acquired_at"]), 1_000)
    assert taken_ms >= over_at_ms(stored_ms), "not before its lease is over by AWS's time"
    assert answers[-1]["fencing_token"] == first["fencing_token"] + 1

    item = functions.item(lock_name)
    not_held = {**anna, "reason": "NOT_HELD"}
    assert functions.ask("heartbeat", anna) == {"renewed": False, **not_held}
    assert functions.ask("release", anna) == {"released": False, **not_held}
    assert functions.item(lock_name) == item
    assert functions.ask("acquire", ben)["fencing_token"] == first["fencing_token"] + 1


def test_ttl_is_on_and_its_attribute_is_epoch_seconds_two_days_ahead(
    functions: Functions,
) -> None:
    described = functions.dynamodb.describe_time_to_live(TableName=functions.table)
    assert described["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": "expiry_time",
    }
    named = {"lock_name": unique("ttl"), "owner_id": unique("owner")}
    for operation in ("acquire", "heartbeat", "release"):
        before = int(time.time())
        functions.ask(operation, named)
        expiry_seconds = int(functions.item(named["lock_name"])["expiry_time"]["N"])
        assert before + HOURS_48 <= expiry_seconds <= int(time.time()) + HOURS_48


def test_the_functions_log_json_lines_without_owner_ids(functions: Functions) -> None:
    named = {"lock_name": unique("logs"), "owner_id": unique("owner")}
    invoked = [
        functions.invoke(operation, named)
        for operation in ("acquire", "acquire", "heartbeat", "release", "release", "heartbeat")
    ]
    lines = [line for one in invoked for line in one.log.splitlines() if _is_ours(line)]
    messages = [json.loads(line).get("message") for line in lines]
    said = [message for message in messages if message is not None]
    assert said == ["granted", "granted", "released", "released", "not held"]
    assert not [one.log for one in invoked if named["owner_id"] in one.log]


def _is_ours(line: str) -> bool:
    """Apart from the lines that the Lambda platform writes."""
    return bool(line.strip()) and not line.startswith(("START ", "END ", "REPORT ", "INIT_START "))


# Requests that break a rule, against the deployed functions: typed errors, and nothing written.

TABLES = {
    "acquire": [*ACQUIRES, *NO_OBJECTS],
    "heartbeat": [*HEARTBEATS, *NO_OBJECTS],
    "release": [*RELEASES, *NO_OBJECTS],
}


@pytest.fixture(scope="module")
def held(functions: Functions) -> Iterator[dict[str, Any]]:
    """A lock that the bad requests name: one that passes by mistake changes it."""
    assert functions.ask("acquire", {**NAMED, "lease_seconds": 600})["acquired"]
    yield functions.item(NAMED["lock_name"])
    functions.ask("release", NAMED)


@pytest.mark.parametrize("operation", TABLES)
def test_bad_input_is_an_invalid_request_and_leaves_the_table_unchanged(
    functions: Functions, held: dict[str, Any], operation: str
) -> None:
    assert functions.item(NAMED["lock_name"]) == held
    before = functions.written()
    assert len(TABLES[operation]) >= 30
    unlike = [bad.name for bad in TABLES[operation] if not _is_refused(functions, operation, bad)]
    assert unlike == []
    assert functions.written() == before


def _is_refused(functions: Functions, operation: str, bad: BadInput) -> bool:
    invoked = functions.invoke(operation, bad.event)
    message = str(invoked.payload.get("errorMessage"))
    field = bad.field or "a field of 0 characters"
    return (
        invoked.function_error == "Unhandled"
        and invoked.error == "InvalidRequest"
        and message.startswith(f"{field}: {bad.rule}")
    )


def test_the_functions_still_work_after_all_those_errors(functions: Functions) -> None:
    """A worker that a bad request had killed would answer with an error of the runtime."""
    for operation in TABLES:
        named = {**NAMED, "lock_name": "after-the-errors"}
        assert functions.invoke(operation, named).function_error is None
