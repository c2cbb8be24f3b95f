"""Rules of the fields of requests: what each accepts and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.loaders import Loader

from fairlock.errors import InvalidRequest
from fairlock.protocol.model import (
    AcquireRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    ReleaseRequest,
)
from fairlock.testing.manual_clock import START_MS
from fairlock.wire.requests import parse_acquire, parse_heartbeat, parse_release
from fairlock.wire.rules import is_durable, is_standard, place_in
from tests.support.bad_inputs import (
    ACQUIRES,
    BEAT,
    HEARTBEATS,
    NAMED,
    NO_OBJECTS,
    RELEASES,
    TEXT_LIMIT,
    VALID_EXECUTION,
    VALID_OWNER,
    BadInput,
    nested,
)

# Executions of every place in which AWS has regions, opt-in regions included.


PLACES = [
    (partition["id"], region)
    for partition in Loader().load_data("partitions")["partitions"]
    for region in partition["regions"]
]
UUID = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
EXECUTIONS = {
    "a workflow": f"states:{{}}:123456789012:execution:billing:{UUID}",
    "a child": f"states:{{}}:123456789012:execution:{'m' * 80}/{'l' * 40}:{UUID}",
    "a name of 80": f"states:{{}}:123456789012:execution:billing:{'n' * 80}",
    "a durable": f"lambda:{{}}:123456789012:function:f:7/durable-execution/name/{UUID}",
}


@pytest.mark.parametrize(("partition", "region"), PLACES)
def test_executions_of_every_partition_and_region_own_locks(partition: str, region: str) -> None:
    for kind, end in EXECUTIONS.items():
        arn = f"arn:{partition}:{end.format(region)}"
        asked = {"lock_name": "a", "owner_id": VALID_OWNER, "execution_arn": arn}
        assert parse_acquire(asked).execution_arn == arn, kind
        assert place_in(arn) == (partition, region, "123456789012")
        assert (is_standard(arn), is_durable(arn)) == (kind != "a durable", kind == "a durable")


def test_the_partitions_are_those_of_the_sdk() -> None:
    assert {"aws", "aws-cn", "aws-us-gov"} < {partition for partition, _ in PLACES}
    assert len(PLACES) > 40


# Requests on the right side of each boundary, and what becomes of them.

OWN: dict[str, Any] = dict(NAMED)
KEPT_ALIVE = AcquireRequest(**OWN, execution_arn=VALID_EXECUTION)
BEATING = KeepAliveRequest(
    acquisition=KEPT_ALIVE, execution_arn=VALID_EXECUTION, task_token="a-task-token"
)
LEAVING = ReleaseRequest(**OWN, waits=True, execution_arn=VALID_EXECUTION)
SAME: dict[str, Any] = {
    "owner_name": "billing",
    "limit": 3,
    "execution_arn": VALID_EXECUTION,
    "waiting_since_ms": 1_900_000_000_000,
}
"""Fields that a request has under the same names."""
Parser = Callable[[Any], object]
PARSED: dict[str, tuple[Parser, dict[str, Any], object]] = {
    "acquire": (
        parse_acquire,
        {},
        AcquireRequest(**OWN, owner_name="", lease_ms=60_000, limit=1, data=None),
    ),
    "acquire with all fields": (
        parse_acquire,
        {
            **SAME,
            "lease_seconds": 1.5,
            "data": {"why": "é", "list": [1, None]},
            "entered_at_ms": 1_900_000_000_005,
        },
        AcquireRequest(
            **{**OWN, **SAME},
            lease_ms=1_500,
            data='{"why":"é","list":[1,null]}',
            called_at_ms=1_900_000_000_005,
        ),
    ),
    "the time of the call says nothing of the wait": (
        parse_acquire,
        {"entered_at_ms": 1_900_000_000_007},
        AcquireRequest(**OWN, called_at_ms=1_900_000_000_007),
    ),
    "heartbeat": (parse_heartbeat, {}, HeartbeatRequest(**OWN, lease_ms=None, data=None)),
    "heartbeat with all fields": (
        parse_heartbeat,
        {"lease_seconds": 30, "data": {}},
        HeartbeatRequest(**OWN, lease_ms=30_000, data="{}"),
    ),
    "heartbeat with a task token": (parse_heartbeat, BEAT, BEATING),
    "heartbeat with a task token and all fields": (
        parse_heartbeat,
        {**BEAT, "owner_name": "billing", "lease_seconds": 30, "limit": 3},
        replace(
            BEATING,
            acquisition=replace(KEPT_ALIVE, owner_name="billing", lease_ms=30_000, limit=3),
        ),
    ),
    "release": (parse_release, {}, ReleaseRequest(**OWN)),
    **{
        f"release with all fields, {keep_alive}": (
            parse_release,
            {"queue": True, "execution_arn": VALID_EXECUTION, "keep_alive": keep_alive},
            replace(LEAVING, keep_alive=keep_alive),
        )
        for keep_alive in (True, False)
    },
}


@pytest.mark.parametrize("case", PARSED)
def test_a_request_has_its_fields_or_their_defaults(case: str) -> None:
    parse, fields, expected = PARSED[case]
    request = parse({**NAMED, **fields})
    assert request == expected
    assert "a-task-token" not in repr(request)


def test_a_new_owner_id_is_made_for_each_acquisition_that_brings_none() -> None:
    made = {parse_acquire({"lock_name": "x"}).owner_id for _ in range(100)}
    assert len(made) == 100
    for owner_id in made:
        assert parse_release({"lock_name": "x", "owner_id": owner_id}).owner_id == owner_id


TEXTS = [
    *(("lock_name", name) for name in ("x", "x" * 512, "€" * 170 + "xx", "LOCK#a#STATE", "😀 1")),
    *(("lock_name", name) for name in ("Zürich/Anna & Ben", "café", "ναός/日本/עברית")),
    *(("owner_id", text) for text in ("x" * 16, "x" * 128)),
    ("owner_id", " !\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~"),
    *(("owner_name", name) for name in ("", "x" * 512, "é" * 512, "😀" * 256)),
    ("execution_arn", VALID_EXECUTION),
    ("execution_arn", VALID_EXECUTION.replace("aws", "aws-us-gov")),
    ("execution_arn", VALID_EXECUTION.replace("run-1", "r" * 80)),
]
WHOLE = [
    *(("limit", number) for number in (1, 100, 5.0)),
    # From 2020 to the year 9999.
    *(("waiting_since_ms", at) for at in (1_577_836_800_000, 1.9e12, 253_402_300_799_999)),
]
LEASES = ((1, 1_000), (1.0, 1_000), (1.0004, 1_000), (1.0006, 1_001), (43_200, 43_200_000))
LEAVES: list[tuple[dict[str, Any], bool, int | None]] = [
    # A release leaves the queue if it names the queue or a ticket.
    ({}, False, None),
    ({"ticket": None}, False, None),
    ({"ticket": 7}, True, 7),
    ({"ticket": 0}, True, 0),
    ({"queue": True}, True, None),
    ({"queue": False}, False, None),
    ({"ticket": 7, "queue": False}, True, 7),
    ({"ticket": None, "queue": True}, True, None),
]
TIMES = ({"entered_at_ms": START_MS}, {"waiting_since_ms": START_MS})
NO_TICKETS: list[dict[str, Any]] = [{}, {"ticket": None}, *TIMES]
KEPT: list[tuple[Parser, dict[str, Any], dict[str, Any]]] = [
    *((parse_acquire, {field: text}, {field: text}) for field, text in TEXTS),
    *((parse_acquire, {field: number}, {field: int(number)}) for field, number in WHOLE),
    *(
        (parse, {"lease_seconds": seconds}, {"lease_ms": lease_ms})
        for parse in (parse_acquire, parse_heartbeat)
        for seconds, lease_ms in LEASES
    ),
    *((parse_release, each, {"waits": waits, "ticket": ticket}) for each, waits, ticket in LEAVES),
    # A waiter without a ticket has none, whatever times it tells.
    *(
        (parse_acquire, {"queue": True, **each}, {"ticket": None, "claimed_at_ms": None})
        for each in NO_TICKETS
    ),
    # A place in the queue lasts a minute longer than the fallback period.
    (
        parse_acquire,
        {**BEAT, "queue": True, "fallback_seconds": 300},
        {"waiter_timeout_ms": 360_000},
    ),
]


@pytest.mark.parametrize(("parse", "fields", "kept"), KEPT)
def test_what_a_request_means_is_kept(
    parse: Parser, fields: dict[str, Any], kept: dict[str, object]
) -> None:
    request = parse({**NAMED, **fields})
    for name, value in kept.items():
        found = getattr(request, name)
        assert (found, type(found)) == (value, type(value))


def test_data_is_measured_in_bytes_of_compact_utf8() -> None:
    data: list[tuple[dict[str, Any], int]] = [
        ({}, 2),
        ({"a": "x" * 2040}, 2048),
        ({"a": "€" * 680}, 2048),
        ({"a": 1e300}, 12),
        (nested(32), 188),
    ]
    for value, size in data:
        kept = parse_acquire({**NAMED, "data": value}).data
        assert kept is not None
        assert len(kept.encode()) == size


# Requests that break a rule: which field is blamed, with which sentence, showing which value.


LONGEST_VALUE_SHOWN = 60 + len("''… (1000000 characters)")


def blamed(parse: Parser, event: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(event)
    return caught.value


BAD = {parse_acquire: ACQUIRES, parse_heartbeat: HEARTBEATS, parse_release: RELEASES}
CASES = [
    pytest.param(parse, bad, id=f"{parse.__name__}-{bad.name}")
    for parse, table in BAD.items()
    for bad in (*table, *NO_OBJECTS)
]


@pytest.mark.parametrize(("parse", "bad"), CASES)
def test_bad_input_is_refused_naming_field_rule_and_value(parse: Parser, bad: BadInput) -> None:
    error = blamed(parse, bad.event)
    assert error.rule.startswith(bad.rule)
    assert error.field == (bad.field or "a field of 0 characters")
    assert str(error).startswith(f"{error.field}: {bad.rule}")
    if error.value is not None:
        assert len(error.value) <= LONGEST_VALUE_SHOWN
        assert error.value in str(error)
    str(error).encode()


FIELDS = "its fields are lock_name, owner_id, lease_seconds, data"
BLAMED: list[tuple[Parser, object, str]] = [
    (parse_acquire, {**NAMED, "limit": 0}, f"limit: {TEXT_LIMIT} (got 0)"),
    (parse_release, {"lock_name": "x"}, "owner_id: is required (it is missing)"),
    (
        parse_heartbeat,
        {**NAMED, "force": True},
        f"force: is not a field of this request; {FIELDS} (got True)",
    ),
    # A misspelled field, and not the one that it leaves missing.
    (parse_release, {"lock_nmae": "x", "owner_id": VALID_OWNER}, "lock_nmae: is not a field"),
    # A broken rule, and not a field that there is not.
    (parse_acquire, {"lock_name": "x", "zzz": 1, "limit": 0}, f"limit: {TEXT_LIMIT} (got 0)"),
    # A number that is too long to be printed.
    (parse_acquire, {"lock_name": "x", "limit": 10**5000}, f"limit: {TEXT_LIMIT} (got "),
]


def test_the_message_blames_the_first_mistake_in_a_sentence() -> None:
    for parse, event, message in BLAMED:
        assert str(blamed(parse, event)).startswith(message)


def test_a_value_is_shown_shortened() -> None:
    long = ("x" * 1_000_000, ["x" * 100] * 100, {"k" * 100: 1}, 10**3000)
    for value in (*long, "\0" * 1_000, "\ud800" * 60):
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
