"""Requests that break a rule: which field is blamed, with which sentence, showing which value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairlock.errors import InvalidRequest
from fairlock.wire.requests import parse_acquire, parse_heartbeat, parse_release
from tests.support.bad_inputs import (
    ACQUIRES,
    HEARTBEATS,
    NAMED,
    NO_OBJECTS,
    RELEASES,
    TEXT_LIMIT,
    VALID_OWNER,
    BadInput,
    nested,
)

Parser = Callable[[object], object]
LONGEST_VALUE_SHOWN = 60 + len("''… (1000000 characters)")


def blamed(parse: Parser, event: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(event)
    return caught.value


def _cases() -> list[Any]:
    tables = [
        (parse_acquire, [*ACQUIRES, *NO_OBJECTS]),
        (parse_heartbeat, [*HEARTBEATS, *NO_OBJECTS]),
        (parse_release, [*RELEASES, *NO_OBJECTS]),
    ]
    return [
        pytest.param(parse, bad, id=f"{parse.__name__}-{bad.name}")
        for parse, table in tables
        for bad in table
    ]


@pytest.mark.parametrize(("parse", "bad"), _cases())
def test_bad_input_is_refused_naming_field_rule_and_value(parse: Parser, bad: BadInput) -> None:
    error = blamed(parse, bad.event)
    assert error.rule.startswith(bad.rule)
    assert error.field == (bad.field or "a field of 0 characters")
    assert str(error).startswith(f"{error.field}: {bad.rule}")
    if error.value is not None:
        assert len(error.value) <= LONGEST_VALUE_SHOWN
        assert error.value in str(error)
    str(error).encode()


def test_the_message_reads_as_a_sentence() -> None:
    error = blamed(parse_acquire, {**NAMED, "limit": 0})
    assert str(error) == f"limit: {TEXT_LIMIT} (got 0)"
    assert (error.field, error.rule, error.value) == ("limit", TEXT_LIMIT, "0")


def test_a_missing_field_is_said_to_be_missing() -> None:
    error = blamed(parse_release, {"lock_name": "x"})
    assert str(error) == "owner_id: is required (it is missing)"
    assert error.value is None


def test_the_refusal_of_an_unknown_field_lists_the_known_ones() -> None:
    message = str(blamed(parse_heartbeat, {**NAMED, "force": True}))
    assert message == (
        "force: is not a field of this request; "
        "its fields are lock_name, owner_id, lease_seconds, data (got True)"
    )


def test_a_misspelled_field_is_blamed_rather_than_the_one_it_leaves_missing() -> None:
    event = {"lock_nmae": "x", "owner_id": VALID_OWNER}
    assert blamed(parse_release, event).field == "lock_nmae"


def test_a_broken_rule_is_blamed_rather_than_an_unknown_field() -> None:
    assert blamed(parse_acquire, {"lock_name": "x", "zzz": 1, "limit": 0}).field == "limit"


@pytest.mark.parametrize(
    "value",
    ["x" * 1_000_000, "\0" * 1_000, "\ud800" * 60, ["x" * 100] * 100, {"k" * 100: 1}, 10**3000],
    ids=["long text", "control characters", "surrogates", "list", "object", "digits"],
)
def test_a_value_is_shown_shortened(value: object) -> None:
    error = blamed(parse_acquire, {"lock_name": value})
    assert error.value is not None
    assert len(error.value) <= LONGEST_VALUE_SHOWN
    assert len(str(error)) < 260


def test_a_long_name_of_an_unknown_field_is_shown_shortened() -> None:
    error = blamed(parse_release, {**NAMED, "x" * 100_000: 1})
    assert error.field == "a field of 100000 characters"
    assert len(str(error)) < 250


@pytest.mark.parametrize("depth", [500, *range(900, 1000, 3)])
def test_any_nesting_that_json_can_read_is_an_invalid_request_and_never_a_crash(depth: int) -> None:
    text = json.dumps(VALID_OWNER)
    deep = '{"a":' * depth + text + "}" * depth
    try:
        data = json.loads(deep)
    except RecursionError:
        return
    assert blamed(parse_acquire, {"lock_name": "x", "data": data}).field == "data"
    assert blamed(parse_acquire, {"lock_name": data}).field == "lock_name"


def test_a_number_too_long_to_print_is_an_invalid_request_and_never_a_crash() -> None:
    assert blamed(parse_acquire, {"lock_name": "x", "limit": 10**5000}).field == "limit"


def test_nesting_within_the_size_is_no_fault() -> None:
    assert parse_acquire({**NAMED, "data": nested(32)}).data == '{"a":' * 31 + "{}" + "}" * 31
