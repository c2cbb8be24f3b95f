"""Requests that break one input rule each: for the parsers here, and for the deployed functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

VALID_OWNER: Final = "owner-0123456789"
VALID_EXECUTION: Final = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
NAMED: Final = {"lock_name": "nightly-report", "owner_id": VALID_OWNER}
BEAT: Final = {**NAMED, "task_token": "a-task-token", "execution_arn": VALID_EXECUTION}

TEXT_NAME = "must "
TEXT_OWNER = "must be a string of 16 to 128 printable ASCII characters, unique to this acquisition"
TEXT_OWNER_NAME = (
    "must be a string of at most 512 characters (1024 bytes of UTF-8) without control characters"
)
TEXT_LEASE = "must be a number of seconds from 1 to 43200 (12 h)"
TEXT_LIMIT = "must be a whole number from 1 to 100"
TEXT_DATA = (
    "must be a JSON object of at most 2048 bytes of compact UTF-8 and 32 levels, without NaN"
)
TEXT_EXECUTION = "must be the ARN of a Standard workflow execution"
TEXT_ENTERED = "must be a whole number of milliseconds since 1970"
TEXT_NO_SECONDS = "must be milliseconds since 1970, not seconds: multiply by 1000, and round"
TEXT_TICKET = "must be the ticket of an earlier answer, a whole number; or null for none"
TEXT_FALLBACK = "must be a number of seconds from 1 to 43200 (12 h)"
TEXT_TOKEN = "must be a task token of Step Functions, a string of 1 to 2048 characters"
TEXT_FLAG = "must be true or false"
TEXT_UNKNOWN = "is not a field of this request"
TEXT_REQUIRED = "is required"
NAN: Final = float("nan")
INFINITY: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInput:
    """An event, the field at fault, and how the sentence begins that tells the caller so."""

    name: str
    event: Any
    field: str
    rule: str


def _field(field: str, rule: str, values: dict[str, Any]) -> list[BadInput]:
    return [
        BadInput(name=f"{field}: {name}", event={**NAMED, field: value}, field=field, rule=rule)
        for name, value in values.items()
    ]


def _beating(field: str, rule: str, values: dict[str, Any]) -> list[BadInput]:
    """A heartbeat of keep_alive, valid but for one field."""
    return [
        BadInput(
            name=f"{field} of keep_alive: {name}",
            event={**BEAT, field: value},
            field=field,
            rule=rule,
        )
        for name, value in values.items()
    ]


def nested(depth: int) -> dict[str, Any]:
    """An object within an object within ... `depth` braces in all."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


NAMES: Final = [
    *_field(
        "lock_name",
        TEXT_NAME,
        {
            "empty": "",
            "513 bytes": "x" * 513,
            "171 characters of 3 bytes": "€" * 171,
            "newline": "a\nb",
            "null byte": "a\0b",
            "delete": "a\x7fb",
            "C1 control": "a\x85b",
            "blank at the end": "customer/1 ",
            "blank at the beginning": " customer/1",
            "no-break space at the end": "customer/1\N{NO-BREAK SPACE}",
            "no-break space": "Anna\N{NO-BREAK SPACE}Berg",
            "narrow no-break space": "Anna\N{NARROW NO-BREAK SPACE}Berg",
            "em space": "Anna\N{EM SPACE}Berg",
            "ideographic space": "Anna\N{IDEOGRAPHIC SPACE}Berg",
            "blank of Braille": "Anna\N{BRAILLE PATTERN BLANK}Berg",
            "nothing but a blank": " ",
            "zero-width space": "cust\N{ZERO WIDTH SPACE}omer/1",
            "zero-width joiner": "customer\N{ZERO WIDTH JOINER}",
            "byte order mark": "\N{ZERO WIDTH NO-BREAK SPACE}customer",
            "soft hyphen": "cust\N{SOFT HYPHEN}omer",
            "variation selector": "a\N{VARIATION SELECTOR-16}",
            "filler": "a\N{HANGUL FILLER}b",
            "tag": "a\N{TAG LATIN SMALL LETTER A}",
            "other direction of writing": "a\N{RIGHT-TO-LEFT OVERRIDE}b",
            "line separator": "a\N{LINE SEPARATOR}b",
            "not composed": "cafe\N{COMBINING ACUTE ACCENT}",
            "a sign that has another": "\N{KELVIN SIGN}elvin",
            "lone surrogate": "a\ud800b",
            "unassigned": "a\u0378b",
            "no character": "a\ufdd0b",
            "private": "a\ue000b",
            "null": None,
            "number": 5,
            "true": True,
            "list": ["nightly-report"],
            "object": {"name": "nightly-report"},
        },
    ),
    *_field(
        "owner_id",
        TEXT_OWNER,
        {
            "15 characters": "x" * 15,
            "129 characters": "x" * 129,
            "not ASCII": "öwner-0123456789",
            "newline at the end": f"{VALID_OWNER}\n",
            "delete": f"{VALID_OWNER}\x7f",
            "lone surrogate": f"{VALID_OWNER}\udfff",
            "null": None,
            "number": 1234567890123456,
            "empty": "",
        },
    ),
    BadInput(
        name="lock_name: missing",
        event={"owner_id": VALID_OWNER},
        field="lock_name",
        rule=TEXT_REQUIRED,
    ),
]
"""Rules that all three operations share."""

LEASES: Final = _field(
    "lease_seconds",
    TEXT_LEASE,
    {
        "zero": 0,
        "under a second": 0.999,
        "negative": -60,
        "over 12 h": 43200.001,
        "huge": 10**30,
        "NaN": NAN,
        "Infinity": INFINITY,
        "-Infinity": -INFINITY,
        "true": True,
        "text": "60",
        "null": None,
        "list": [60],
    },
)
DATAS: Final = _field(
    "data",
    TEXT_DATA,
    {
        "2049 bytes": {"a": "x" * 2041},
        "683 characters of 3 bytes": {"a": "€" * 681},
        "100 levels of nesting, and too large": {"pad": "x" * 1700, **nested(100)},
        "33 levels of nesting": nested(33),
        "bottomless nesting": nested(700),
        "NaN inside": {"a": [NAN]},
        "Infinity inside": {"a": INFINITY},
        "lone surrogate inside": {"a": "\ud800"},
        "lone surrogate as a key": {"\udcff": 1},
        "list": [1, 2],
        "text": "{}",
        "null": None,
        "true": True,
        "number": 0,
    },
)

EXECUTIONS: Final[dict[str, Any]] = {
    "state machine": "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
    "Express execution": VALID_EXECUTION.replace("execution", "express") + ":1f2e",
    "short account": VALID_EXECUTION.replace("123456789012", "12345678901"),
    "name of 81 characters": VALID_EXECUTION.replace("run-1", "r" * 81),
    "space in the name": VALID_EXECUTION.replace("run-1", "run 1"),
    "control character in the name": VALID_EXECUTION.replace("run-1", "run\x001"),
    "lone surrogate in the name": VALID_EXECUTION.replace("run-1", "run\ud8001"),
    "digits that are not ASCII": VALID_EXECUTION.replace(
        "123456789012", "\N{ARABIC-INDIC DIGIT ONE}" * 12
    ),
    "513 bytes": VALID_EXECUTION.replace("run-1", "😀" * 80).replace(
        "billing", "é" * 64 + "b" * 16
    ),
    "newline at the end": f"{VALID_EXECUTION}\n",
    "empty": "",
    "null": None,
}

ACQUIRES: Final = [
    *NAMES,
    *LEASES,
    *DATAS,
    *_field(
        "owner_name",
        TEXT_OWNER_NAME,
        {
            "513 characters": "x" * 513,
            "1025 bytes in 342 characters": "€" * 341 + "xx",
            "tab": "a\tb",
            "lone surrogate": "\ud800",
            "null": None,
            "number": 1,
        },
    ),
    *_field(
        "limit",
        TEXT_LIMIT,
        {
            "zero": 0,
            "101": 101,
            "negative": -1,
            "a fraction": 1.5,
            "NaN": NAN,
            "Infinity": INFINITY,
            "true": True,
            "text": "1",
            "null": None,
            "huge": 10**400,
        },
    ),
    *_field("execution_arn", TEXT_EXECUTION, EXECUTIONS),
    *_field(
        "entered_at_ms",
        TEXT_ENTERED,
        {
            "negative": -1,
            "zero": 0,
            "a fraction": 1_900_000_000_000.5,
            "year 10000": 253_402_300_800_000,
            "NaN": NAN,
            "true": True,
            "text": "1900000000000",
            "null": None,
        },
    ),
    BadInput(
        name="entered_at_ms: with task_token",
        event={
            **NAMED,
            "task_token": "a-task-token",
            "execution_arn": VALID_EXECUTION,
            "entered_at_ms": 1_900_000_000_000,
        },
        field="entered_at_ms",
        rule="must not be sent with task_token: the claim of the execution tells a late call",
    ),
    *(
        row
        for field in ("entered_at_ms", "waiting_since_ms")
        for row in _field(
            field, TEXT_NO_SECONDS, {"seconds": 1_795_486_316, "with a fraction": 1_795_486_316.5}
        )
    ),
    *_field(
        "waiting_since_ms", TEXT_ENTERED, {"zero": 0, "negative": -1, "text": "1", "null": None}
    ),
    *_field("ticket", TEXT_TICKET, {"negative": -1, "text": "1", "a fraction": 1.5, "true": True}),
    *_field(
        "fallback_seconds",
        TEXT_FALLBACK,
        {"zero": 0, "more than 12 h": 43_201, "text": "300", "NaN": NAN, "null": None},
    ),
    BadInput(
        name="execution_arn of task_token: missing",
        event={**NAMED, "task_token": "a-task-token"},
        field="execution_arn",
        rule="is required with task_token",
    ),
    *_field("queue", TEXT_FLAG, {"number": 1, "text": "true", "null": None}),
    *_field(
        "task_token",
        TEXT_TOKEN,
        {"empty": "", "2049 characters": "x" * 2049, "null": None, "newline": "a\n"},
    ),
    *_field("lockname", TEXT_UNKNOWN, {"an unknown field": "x"}),
    *_field("Limit", TEXT_UNKNOWN, {"capital letter": 1}),
    *_field("", TEXT_UNKNOWN, {"a field without a name": 1}),
]
HEARTBEATS: Final = [
    *NAMES,
    *LEASES,
    *DATAS,
    BadInput(
        name="owner_id: missing", event={"lock_name": "x"}, field="owner_id", rule=TEXT_REQUIRED
    ),
    *_field("limit", TEXT_UNKNOWN, {"a field of acquire only": 1}),
    *_field("owner_name", TEXT_UNKNOWN, {"a field of acquire only": "anna"}),
    *_field("execution_arn", TEXT_UNKNOWN, {"without a task token": VALID_EXECUTION}),
    *_field("entered_at_ms", TEXT_UNKNOWN, {"a field of acquire only": 1}),
    *_field("keep_alive", TEXT_UNKNOWN, {"a field of release only": True}),
    *_beating(
        "task_token",
        TEXT_TOKEN,
        {"empty": "", "2049 characters": "x" * 2049, "null": None, "number": 1, "newline": "a\n"},
    ),
    *_beating("execution_arn", TEXT_EXECUTION, EXECUTIONS),
    BadInput(
        name="execution_arn of keep_alive: missing",
        event={**NAMED, "task_token": "a-task-token"},
        field="execution_arn",
        rule=TEXT_REQUIRED,
    ),
    *_beating("lock_name", TEXT_NAME, {"empty": "", "null": None}),
    *_beating("owner_id", TEXT_OWNER, {"15 characters": "x" * 15, "null": None}),
    *_beating("owner_name", TEXT_OWNER_NAME, {"513 characters": "x" * 513, "null": None}),
    *_beating("lease_seconds", TEXT_LEASE, {"zero": 0, "text": "60", "NaN": NAN}),
    *_beating("limit", TEXT_LIMIT, {"zero": 0, "101": 101, "text": "1"}),
    *_beating("waiting_since_ms", TEXT_UNKNOWN, {"a field of acquire only": 1}),
    *_beating("data", TEXT_UNKNOWN, {"a field of the other heartbeat": {}}),
    *_beating("queue", TEXT_UNKNOWN, {"a field of acquire only": True}),
    *_beating("keep_alive", TEXT_UNKNOWN, {"a field of release only": True}),
]
RELEASES: Final = [
    *NAMES,
    BadInput(
        name="owner_id: missing", event={"lock_name": "x"}, field="owner_id", rule=TEXT_REQUIRED
    ),
    *_field("lease_seconds", TEXT_UNKNOWN, {"a field of heartbeat only": 60}),
    *_field("data", TEXT_UNKNOWN, {"a field of heartbeat only": {}}),
    *_field("ticket", TEXT_TICKET, {"a fraction": 1.5}),
    *_field("entered_at_ms", TEXT_UNKNOWN, {"a field of acquire only": 1}),
    *_field("queue", TEXT_FLAG, {"number": 1, "text": "true", "null": None}),
    *_field("task_token", TEXT_UNKNOWN, {"a field of heartbeat only": "a-task-token"}),
    *_field("execution_arn", TEXT_EXECUTION, EXECUTIONS),
    *_field("keep_alive", TEXT_FLAG, {"number": 1, "text": "true", "null": None}),
    BadInput(
        name="execution_arn: missing with keep_alive",
        event={**NAMED, "keep_alive": True},
        field="execution_arn",
        rule=TEXT_REQUIRED,
    ),
]
NO_OBJECTS: Final = [
    BadInput(name=f"request: {name}", event=event, field="request", rule="must be a JSON object")
    for name, event in {
        "null": None,
        "list": [NAMED],
        "text": "nightly-report",
        "number": 1,
        "true": True,
    }.items()
]
