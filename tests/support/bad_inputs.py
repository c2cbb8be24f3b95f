"""Requests that break one input rule each: for the parsers here, and for the deployed functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

VALID_OWNER: Final = "owner-0123456789"
VALID_EXECUTION: Final = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
NAMED: Final = {"lock_name": "nightly-report", "owner_id": VALID_OWNER}
BEAT: Final = {**NAMED, "task_token": "a-task-token", "execution_arn": VALID_EXECUTION}

TEXT_LIMIT = "must be a whole number from 1 to 100"
TEXT_NO_SECONDS = "must be milliseconds since 1970, not seconds: multiply by 1000, and round"
TEXT_UNKNOWN = "is not a field of this request"
_SINCE_1970: Final = "must be a whole number of milliseconds since 1970"
_SHORT_TEXT: Final = (
    "must be a string of at most 512 characters (1024 bytes of UTF-8) without control characters"
)
_SECONDS: Final = "must be a number of seconds from 1 to 43200 (12 h)"

NO_NAME_HAS: Final = (
    "\n\0\x7f\x85\N{LINE SEPARATOR}"
    "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{EM SPACE}\N{IDEOGRAPHIC SPACE}"
    "\N{ZERO WIDTH SPACE}\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NO-BREAK SPACE}\N{SOFT HYPHEN}"
    "\N{BRAILLE PATTERN BLANK}\N{HANGUL FILLER}\N{VARIATION SELECTOR-16}"
    "\N{TAG LATIN SMALL LETTER A}\N{RIGHT-TO-LEFT OVERRIDE}"
    "\N{COMBINING ACUTE ACCENT}\N{KELVIN SIGN}"  # not composed, and a sign that has another
    "\ud800\u0378\ufdd0\ue000"  # a lone surrogate, unassigned, no character, private
)
NO_TEXTS: Final = (None, 5, True, ["nightly-report"], {"name": "nightly-report"})
NO_NUMBERS: Final = (None, True, "60", [60], float("nan"), float("inf"), -float("inf"))
NO_BOOLEANS: Final = (None, 1, "true")
TIMES: Final = ("entered_at_ms", "waiting_since_ms")
NO_TIMES: Final = (-1, 0, 1_900_000_000_000.5, 253_402_300_800_000, *NO_NUMBERS)
"""253,402,300,800,000 is in the year 10000."""


def nested(depth: int) -> dict[str, Any]:
    """An object within an object within ... `depth` braces in all."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


WRONG: Final[dict[str, tuple[str, Sequence[Any]]]] = {
    "lock_name": (
        "must ",
        (
            *("", "x" * 513, "€" * 171, " ", " customer/1", "customer/1 "),
            "customer/1\N{NO-BREAK SPACE}",
            *(f"a{character}b" for character in NO_NAME_HAS),
            *NO_TEXTS,
        ),
    ),
    "owner_id": (
        "must be a string of 16 to 128 printable ASCII characters, unique to this acquisition",
        (
            *("", "x" * 15, "x" * 129, "öwner-0123456789", 1234567890123456),
            *(f"{VALID_OWNER}{end}" for end in ("\n", "\x7f", "\udfff")),
            *NO_TEXTS,
        ),
    ),
    "owner_name": (
        _SHORT_TEXT,
        ("x" * 513, "€" * 341 + "xx", "a\tb", "\ud800", *NO_TEXTS),
    ),
    "lease_seconds": (_SECONDS, (0, 0.999, -60, 43200.001, 10**30, *NO_NUMBERS)),
    "limit": (TEXT_LIMIT, (0, 101, -1, 1.5, 10**400, *NO_NUMBERS)),
    "data": (
        "must be a JSON object of at most 2048 bytes of compact UTF-8 and 32 levels, without NaN",
        (
            *({"a": "x" * 2041}, {"a": "€" * 681}, {"pad": "x" * 1700, **nested(100)}),
            *(nested(33), nested(700), {"a": [float("nan")]}, {"a": float("inf")}),
            *({"a": "\ud800"}, {"\udcff": 1}, [1, 2], "{}", None, True, 0),
        ),
    ),
    "execution_arn": (
        "must be the ARN of a Standard workflow execution",
        (
            *("", f"{VALID_EXECUTION}\n", None),
            "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
            VALID_EXECUTION.replace("execution", "express") + ":1f2e",
            VALID_EXECUTION.replace("123456789012", "12345678901"),
            VALID_EXECUTION.replace("123456789012", "\N{ARABIC-INDIC DIGIT ONE}" * 12),
            *(
                VALID_EXECUTION.replace("run-1", name)
                for name in ("r" * 81, "run 1", "run\x001", "run\ud8001")
            ),
            # 513 bytes.
            VALID_EXECUTION.replace("run-1", "😀" * 80).replace("billing", "é" * 64 + "b" * 16),
        ),
    ),
    **dict.fromkeys(TIMES, (_SINCE_1970, NO_TIMES)),
    "ticket": (
        "must be the ticket of an earlier answer, a whole number; or null for none",
        (-1, 1.5, "1", True),
    ),
    "fallback_seconds": (_SECONDS, (0, 43_201, *NO_NUMBERS)),
    "task_token": (
        "must be a task token of Step Functions, a string of 1 to 2048 characters",
        ("", "x" * 2049, "a\n", *NO_TEXTS),
    ),
    "queue": ("must be true or false", NO_BOOLEANS),
    "keep_alive": ("must be true or false", NO_BOOLEANS),
}
"""Of each field how the sentence begins that tells a caller of it, and values that are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInput:
    """An event, the field at fault, and how the sentence begins that tells the caller so."""

    event: Any
    field: str
    rule: str

    @property
    def name(self) -> str:
        if not isinstance(self.event, dict):
            return f"{self.field}: {self.event}"
        if self.field not in self.event:
            return f"{self.field}: missing in {sorted(self.event)}"
        kind = " of keep_alive" if "task_token" in self.event else ""
        return f"{self.field}{kind}: {ascii(self.event[self.field])[:40]}"


def _wrong(fields: str, valid: dict[str, str] = NAMED) -> list[BadInput]:
    """Requests that are valid but for one of these fields."""
    return [
        BadInput(event={**valid, field: value}, field=field, rule=rule)
        for field in fields.split()
        for rule, values in [WRONG[field]]
        for value in values
    ]


def _refused(rule: str, fields: dict[str, Any], valid: dict[str, str] = NAMED) -> list[BadInput]:
    """Requests that are valid but for one of these fields, of which the caller is told this."""
    return [
        BadInput(event={**valid, field: value}, field=field, rule=rule)
        for field, value in fields.items()
    ]


def _missing(field: str, event: dict[str, Any], rule: str = "is required") -> BadInput:
    return BadInput(event=event, field=field, rule=rule)


OF_ALL: Final = [*_wrong("lock_name owner_id"), _missing("lock_name", {"owner_id": VALID_OWNER})]
ACQUIRES: Final = [
    *OF_ALL,
    *_wrong("lease_seconds data owner_name limit execution_arn entered_at_ms waiting_since_ms"),
    *_wrong("ticket fallback_seconds queue task_token"),
    *_refused(
        "must not be sent with task_token: the claim of the execution tells a late call",
        {"entered_at_ms": 1_900_000_000_000},
        BEAT,
    ),
    *(
        row
        for seconds in (1_795_486_316, 1_795_486_316.5)
        for row in _refused(TEXT_NO_SECONDS, dict.fromkeys(TIMES, seconds))
    ),
    _missing(
        "execution_arn", {**NAMED, "task_token": "a-task-token"}, "is required with task_token"
    ),
    *_refused(TEXT_UNKNOWN, {"lockname": "x", "Limit": 1, "": 1}),
]
HEARTBEATS: Final = [
    *OF_ALL,
    *_wrong("lease_seconds data"),
    _missing("owner_id", {"lock_name": "x"}),
    *_refused(TEXT_UNKNOWN, {"limit": 1, "owner_name": "anna", "entered_at_ms": 1}),
    *_refused(TEXT_UNKNOWN, {"keep_alive": True, "execution_arn": VALID_EXECUTION}),
    *_wrong("lock_name owner_id owner_name lease_seconds limit task_token execution_arn", BEAT),
    _missing("execution_arn", {**NAMED, "task_token": "a-task-token"}),
    *_refused(TEXT_UNKNOWN, {"waiting_since_ms": 1, "data": {}}, BEAT),
    *_refused(TEXT_UNKNOWN, {"queue": True, "keep_alive": True}, BEAT),
]
RELEASES: Final = [
    *OF_ALL,
    *_wrong("ticket queue execution_arn keep_alive"),
    _missing("owner_id", {"lock_name": "x"}),
    *_refused(TEXT_UNKNOWN, {"lease_seconds": 60, "data": {}, "entered_at_ms": 1}),
    *_refused(TEXT_UNKNOWN, {"task_token": "a-task-token"}),
    _missing("execution_arn", {**NAMED, "keep_alive": True}),
]
NO_OBJECTS: Final = [
    BadInput(event=event, field="request", rule="must be a JSON object")
    for event in (None, [NAMED], "nightly-report", 1, True)
]
