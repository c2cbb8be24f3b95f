"""Requests that break one input rule each: for the parsers here, and for the deployed functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

VALID_OWNER: Final = "owner-0123456789"
VALID_EXECUTION: Final = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
NAMED: Final = {"lock_name": "nightly-report", "owner_id": VALID_OWNER}
BEAT: Final = {**NAMED, "task_token": "a-task-token", "execution_arn": VALID_EXECUTION}

TEXT_LIMIT = "must be a whole number from 1 to 100"
RULES: Final = {
    "lock_name": "must ",
    "owner_id": "must be a string of 16 to 128 printable ASCII characters, "
    "unique to this acquisition",
    "owner_name": "must be a string of at most 512 characters (1024 bytes of UTF-8) "
    "without control characters",
    "lease_seconds": "must be a number of seconds from 1 to 43200 (12 h)",
    "limit": TEXT_LIMIT,
    "data": "must be a JSON object of at most 2048 bytes of compact UTF-8 and 32 levels, "
    "without NaN",
    "execution_arn": "must be the ARN of a Standard workflow execution",
    "entered_at_ms": "must be a whole number of milliseconds since 1970",
    "ticket": "must be the ticket of an earlier answer, a whole number; or null for none",
    "fallback_seconds": "must be a number of seconds from 1 to 43200 (12 h)",
    "task_token": "must be a task token of Step Functions, a string of 1 to 2048 characters",
    "waiting_since_ms": "must be a whole number of milliseconds since 1970",
    "queue": "must be true or false",
    "keep_alive": "must be true or false",
}
"""How the sentence begins that tells a caller of a field that is wrong."""
TEXT_NO_SECONDS = "must be milliseconds since 1970, not seconds: multiply by 1000, and round"
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


def _wrong(
    field: str, values: dict[str, Any], *, rule: str = "", beat: bool = False
) -> list[BadInput]:
    """Requests that are valid but for one field; or heartbeats of keep_alive."""
    of, valid = (" of keep_alive", BEAT) if beat else ("", NAMED)
    return [
        BadInput(
            name=f"{field}{of}: {name}",
            event={**valid, field: value},
            field=field,
            rule=rule or RULES[field],
        )
        for name, value in values.items()
    ]


def _unknown(*, beat: bool = False, **values: Any) -> list[BadInput]:  # noqa: ANN401 - anything
    """Fields of other requests."""
    return [
        row
        for field, value in values.items()
        for row in _wrong(field, {"unknown here": value}, rule=TEXT_UNKNOWN, beat=beat)
    ]


def _missing(field: str, event: dict[str, Any], rule: str = TEXT_REQUIRED) -> BadInput:
    return BadInput(
        name=f"{field}: missing in {sorted(event)}", event=event, field=field, rule=rule
    )


def nested(depth: int) -> dict[str, Any]:
    """An object within an object within ... `depth` braces in all."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


NAMES: Final = [
    *_wrong(
        "lock_name",
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
    *_wrong(
        "owner_id",
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
    _missing("lock_name", {"owner_id": VALID_OWNER}),
]
"""Rules that all three operations share."""

LEASES: Final = _wrong(
    "lease_seconds",
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
DATAS: Final = _wrong(
    "data",
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
    *_wrong(
        "owner_name",
        {
            "513 characters": "x" * 513,
            "1025 bytes in 342 characters": "€" * 341 + "xx",
            "tab": "a\tb",
            "lone surrogate": "\ud800",
            "null": None,
            "number": 1,
        },
    ),
    *_wrong(
        "limit",
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
    *_wrong("execution_arn", EXECUTIONS),
    *_wrong(
        "entered_at_ms",
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
    *_wrong(
        "entered_at_ms",
        {"with task_token": 1_900_000_000_000},
        rule="must not be sent with task_token: the claim of the execution tells a late call",
        beat=True,
    ),
    *(
        row
        for field in ("entered_at_ms", "waiting_since_ms")
        for row in _wrong(
            field,
            {"seconds": 1_795_486_316, "with a fraction": 1_795_486_316.5},
            rule=TEXT_NO_SECONDS,
        )
    ),
    *_wrong("waiting_since_ms", {"zero": 0, "negative": -1, "text": "1", "null": None}),
    *_wrong("ticket", {"negative": -1, "text": "1", "a fraction": 1.5, "true": True}),
    *_wrong(
        "fallback_seconds",
        {"zero": 0, "more than 12 h": 43_201, "text": "300", "NaN": NAN, "null": None},
    ),
    _missing(
        "execution_arn", {**NAMED, "task_token": "a-task-token"}, "is required with task_token"
    ),
    *_wrong("queue", {"number": 1, "text": "true", "null": None}),
    *_wrong(
        "task_token",
        {"empty": "", "2049 characters": "x" * 2049, "null": None, "newline": "a\n"},
    ),
    *_unknown(lockname="x", Limit=1),
    *_wrong("", {"a field without a name": 1}, rule=TEXT_UNKNOWN),
]
HEARTBEATS: Final = [
    *NAMES,
    *LEASES,
    *DATAS,
    _missing("owner_id", {"lock_name": "x"}),
    *_unknown(limit=1, owner_name="anna", entered_at_ms=1, keep_alive=True),
    *_unknown(execution_arn=VALID_EXECUTION),
    *_wrong(
        "task_token",
        {"empty": "", "2049 characters": "x" * 2049, "null": None, "number": 1, "newline": "a\n"},
        beat=True,
    ),
    *_wrong("execution_arn", EXECUTIONS, beat=True),
    _missing("execution_arn", {**NAMED, "task_token": "a-task-token"}),
    *_wrong("lock_name", {"empty": "", "null": None}, beat=True),
    *_wrong("owner_id", {"15 characters": "x" * 15, "null": None}, beat=True),
    *_wrong("owner_name", {"513 characters": "x" * 513, "null": None}, beat=True),
    *_wrong("lease_seconds", {"zero": 0, "text": "60", "NaN": NAN}, beat=True),
    *_wrong("limit", {"zero": 0, "101": 101, "text": "1"}, beat=True),
    *_unknown(beat=True, waiting_since_ms=1, data={}, queue=True, keep_alive=True),
]
RELEASES: Final = [
    *NAMES,
    _missing("owner_id", {"lock_name": "x"}),
    *_unknown(lease_seconds=60, data={}, entered_at_ms=1, task_token="a-task-token"),
    *_wrong("ticket", {"a fraction": 1.5}),
    *_wrong("queue", {"number": 1, "text": "true", "null": None}),
    *_wrong("execution_arn", EXECUTIONS),
    *_wrong("keep_alive", {"number": 1, "text": "true", "null": None}),
    _missing("execution_arn", {**NAMED, "keep_alive": True}),
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
