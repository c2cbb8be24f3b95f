"""The input rules, one for each field of a request.

Each rule is a predicate, with the sentence that the error shows to a caller.

Two kinds of executions hold locks. Their ARNs tell them apart, and their tokens do:

    arn:…:states:…:execution:MACHINE:NAME                               Standard workflow
    arn:…:lambda:…:function:NAME:VERSION/durable-execution/NAME/ID      durable function

A workflow that waits names a task token, a durable execution a callback id. Both are opaque texts
that look alike. So a callback id is stored with a prefix that no task token has.

A lock is one item of at most 400 KB in DynamoDB: requests are refused long before. No more hold
than the limit of any holder. So if the limit of each, times its own bytes, is within a bound, all
of them together are.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from fairlock.errors import InvalidRequest
from fairlock.protocol.model import DEFAULT_LEASE_MS
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS
from fairlock.text import DEEPEST, NEVER_MEANT, compact_json, fault_of_formatting, is_nested_at_most

_NAMED: Final = r"[^:\s<>{}\[\]?*\"#%\\^|~`$&,;]"  # as StartExecution has it, and a map's label
_STANDARD: Final = re.compile(
    rf"arn:[a-z0-9-]+:states:[a-z0-9-]+:[0-9]{{12}}:execution:{_NAMED}{{1,200}}:{_NAMED}{{1,80}}"
)
_DURABLE: Final = re.compile(
    r"arn:[a-z0-9-]+:lambda:[a-z0-9-]+:[0-9]{12}:function:[a-zA-Z0-9_-]{1,140}"
    r":(\$LATEST(\.PUBLISHED)?|[0-9]+)/durable-execution/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+"
)
_CALLBACK_ID: Final = re.compile(r"[A-Za-z0-9+/]{1,1022}={0,2}")
_PREFIX: Final = "callback:"


def is_standard(arn: str) -> bool:
    """Whether this is the ARN of an execution of a Standard workflow."""
    return _STANDARD.fullmatch(arn) is not None


def is_durable(arn: str) -> bool:
    """Whether this is the ARN of a durable execution."""
    return _DURABLE.fullmatch(arn) is not None


def place_in(arn: str) -> tuple[str, str, str]:
    """Partition, region and account of `arn:partition:service:region:account:…`."""
    _, partition, _, region, account, *_ = arn.split(":")
    return partition, region, account


def callback_token(callback_id: str) -> str:
    """The text that stands for a callback where a workflow has its task token."""
    return f"{_PREFIX}{callback_id}"


def callback_id_in(token: str) -> str | None:
    """The callback's id; None if the token is a workflow's task token."""
    return token.removeprefix(_PREFIX) if token.startswith(_PREFIX) else None


LONGEST_LOCK_NAME_BYTES: Final = 512
LONGEST_OWNER_NAME: Final = 512
LONGEST_OWNER_NAME_BYTES: Final = 1024
DEFAULT_LEASE_SECONDS: Final = DEFAULT_LEASE_MS // 1000
DEFAULT_MAX_WAIT_SECONDS: Final = 30 * 60
"""Of a workflow: a guard, or a durable function."""
DEFAULT_FALLBACK_SECONDS: Final = 5 * 60
"""How often a workflow that sleeps in the queue asks again."""
SHORTEST_FALLBACK_SECONDS: Final = 10
"""Of a guard or a durable function; the functions themselves take a second."""
SHORTEST_LEASE_SECONDS: Final = 1
LONGEST_LEASE_SECONDS: Final = 12 * 3600
HIGHEST_LIMIT: Final = 100
DEFAULT_READERS: Final = 20
"""How many may share a lock: each write of 20 holders costs 3 write units, of 100 it is 14."""
HIGHEST_VERSION: Final = 2**53 - 1
"""The largest whole number that JSON and JSONata carry without loss."""
LONGEST_PERIOD_SECONDS: Final = 31 * 24 * 3600
MOST_A_SECOND: Final = 500
"""DynamoDB takes 1,000 writes a second to one item, and a caller may need two."""
HIGHEST_BURST: Final = 1_000
LONGEST_PACE_WAIT_SECONDS: Final = 7 * 24 * 3600
LARGEST_DATA_BYTES: Final = 2048
LONGEST_EXECUTION_ARN_BYTES: Final = 512
LONGEST_TASK_TOKEN: Final = 2048
LONGEST_REASON_BYTES: Final = 512
LONGEST_REQUESTED_BY_BYTES: Final = 256
HIGHEST_FENCING_TOKEN: Final = 10**18
MOST_REDRIVES: Final = 10**9 - 1
EARLIEST_EPOCH_MS: Final = 1_577_836_800_000  # 2020 began; the seconds of today are below it
LATEST_EPOCH_MS: Final = 253_402_300_799_999  # the last millisecond of the year 9999

_OWNER_ID: Final = re.compile(r"[\x20-\x7e]{16,128}")
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?")
_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,1024}")
_STACK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""What Unicode lets a font ignore (zero-width, direction of writing), and separators of lines."""
_LIKE_A_SPACE: Final = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]")
"""Blanks that no reader tells from a space: no-break ones, as copied text has them, and others."""
_WITHOUT_MEANING: Final = frozenset({"Cn", "Co"})
"""Unassigned and private characters: readers see the same box for all of them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must be.

    Attributes:
        sentence: the rule in words, which `InvalidRequest` shows.
        allows: tells whether a value keeps the rule. It is given JSON values of every type.
        fault: says what a wrong value breaks, and what to do; None shows the sentence.
    """

    sentence: str
    allows: Callable[[Any], bool]
    fault: Callable[[Any], str] | None = None

    def broken_by(self, value: object) -> str:
        """What `InvalidRequest` shows of the rule for a value that breaks it."""
        said = self.sentence if self.fault is None else self.fault(value)
        is_number = isinstance(value, str) and _NUMBER.fullmatch(value) is not None
        if isinstance(value, Decimal) and self._allows_numbers():
            return f"{said}; pass int(…) or float(…) of a Decimal"
        return f"{said}; pass a number, not text" if is_number and self._allows_numbers() else said

    def _allows_numbers(self) -> bool:
        return self.allows(1) or self.allows(EARLIEST_EPOCH_MS)


def require(field: str, rule: Rule, value: object, *, show_text: bool = False) -> None:
    """Raises `InvalidRequest` if the value breaks one of the input rules.

    Text is not shown unless `show_text`: at run time it may be an owner id in the wrong place.
    """
    if not rule.allows(value):
        said = rule.broken_by(value)
        raise InvalidRequest(field=field, rule=said, value=value, show_text=show_text)


def require_one_way(*, shared: bool, only_newest: object) -> None:
    """Raises `InvalidRequest` if a reader asks for the newest only."""
    if shared and only_newest not in (None, False):
        rule = "must be left out with shared: readers hold the lock side by side"
        raise InvalidRequest(field="only_newest", rule=rule, value=only_newest)


def plain_text(field: str, rule: Rule, value: str) -> str:
    """The text of a string; a member of `class Name(str, Enum)` would be formatted as `Name.X`."""
    require(field, rule, value)
    return str.__str__(value)


_NOT_JSON: Final = (
    ": pass str(…) of a date or a set, int(…) or float(…) of a Decimal, and shorten what is nested"
)


def _fault_of_data(value: object) -> str:
    text = compact_json(value) if isinstance(value, dict) else None
    size = 0 if text is None else len(text.encode())
    if isinstance(value, dict) and text is None:
        return f"{DATA.sentence}{_NOT_JSON}"
    if size <= LARGEST_DATA_BYTES:
        return DATA.sentence
    return f"{DATA.sentence}, and has {size} bytes: store the rest elsewhere, and put its key here"


def is_number(value: object, low: float, high: float) -> bool:
    """Whether the value is a number in these bounds. True is no number; NaN is in no bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_whole(value: object, low: int, high: int) -> bool:
    return is_number(value, low, high) and not math.modf(value)[0]  # type: ignore[arg-type]  # a number by now


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: _is_whole(value, low, high)


def _seconds(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: is_number(value, low, high)


def _matching(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_rate(value: object) -> bool:
    """Whether the value is a pair of numbers that makes a rate within bounds."""
    if not isinstance(value, list | tuple) or len(value) != len(("count", "period")):
        return False
    count, period = value
    if not is_number(period, 1, LONGEST_PERIOD_SECONDS):
        return False
    return _is_whole(count, 1, int(period * MOST_A_SECOND))


def utf8_bytes(text: str) -> int | None:
    """The length in UTF-8; None if the text has no UTF-8 form (a lone surrogate)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def is_text(value: object, *, most_bytes: int, least_bytes: int = 0) -> bool:
    """Whether the value is text of that size without control characters."""
    if not isinstance(value, str) or _CONTROL.search(value):
        return False
    size = utf8_bytes(value)
    return size is not None and least_bytes <= size <= most_bytes


_NUMBER_AS_NAME: Final = ": make it text, by str(…) in Python and $string(…) in JSONata"


def fault_of_name(value: object) -> str | None:
    """What makes a value no lock name, and what to do about it; None for a lock name.

    People must not mistake a name for another one, and two texts that look alike are two locks.
    """
    most_bytes = LONGEST_LOCK_NAME_BYTES
    size = utf8_bytes(value) if isinstance(value, str) else None
    if not isinstance(value, str) or not size:
        said = f"must be a string of 1 to {most_bytes} bytes of UTF-8"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return said + _NUMBER_AS_NAME * is_number
    if size > most_bytes:
        most = f"must have at most {most_bytes} bytes of UTF-8, and has {size}"
        return f"{most}: shorten it, or use a hash of the long part"
    if value != value.strip(" "):
        return "must not begin or end with a space: remove it, as strip() does"
    for kind, remedy, letters in (
        ("control", "remove it", _CONTROL),
        ("invisible", "remove it", _INVISIBLE),
        ("blank", "use a plain space", _LIKE_A_SPACE),
    ):
        if found := letters.search(value):
            letter = f"U+{ord(found[0]):04X} at position {found.start() + 1}"
            return f"must not contain the {kind} character {letter}: {remedy}"
    if not unicodedata.is_normalized("NFC", value):
        return "must be in NFC: pass it through unicodedata.normalize('NFC', …)"
    # A later Unicode may compose what has no meaning yet: then one name would be two.
    odd = next((each for each in value if unicodedata.category(each) in _WITHOUT_MEANING), None)
    unknown = odd and (
        f"must not contain U+{ord(odd):04X}, which is unassigned or private: remove it"
    )
    return unknown or (fault_of_formatting(value) if NEVER_MEANT.search(value) else None)


def _is_small_object(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    text = compact_json(value)
    is_small = text is not None and len(text.encode()) <= LARGEST_DATA_BYTES
    return is_small and is_nested_at_most(value, DEEPEST)


_ONE_NAME: Final = (
    "must be one name; for several locks use hold_all of a client, or one hold inside the other, "
    "in the order of sorted(names)"
)


LOCK_NAME: Final = Rule(
    "must be a lock name",
    lambda value: fault_of_name(value) is None,
    lambda value: _ONE_NAME if isinstance(value, list | tuple) else str(fault_of_name(value)),
)
MOST_LOCKS_AT_ONCE: Final = 20
LOCK_NAMES: Final = Rule(
    f"must be a list of 1 to {MOST_LOCKS_AT_ONCE} lock names; for one lock, use hold",
    lambda value: isinstance(value, list | tuple) and 1 <= len(value) <= MOST_LOCKS_AT_ONCE,
)
TABLE_NAME: Final = Rule(
    "must be the name or ARN of a DynamoDB table, of letters, digits and _ . : / - only; for the "
    "table of a stack make the client by from_stack",
    _matching(_TABLE_NAME),
)
STACK_NAME: Final = Rule(
    "must be the name of a stack: a letter, then up to 127 letters, digits and hyphens",
    _matching(_STACK_NAME),
)
OWNER_ID: Final = Rule(
    "must be a string of 16 to 128 printable ASCII characters, unique to this acquisition",
    _matching(_OWNER_ID),
)
OWNER_NAME: Final = Rule(
    f"must be a string of at most {LONGEST_OWNER_NAME} characters "
    f"({LONGEST_OWNER_NAME_BYTES} bytes of UTF-8) without control characters",
    lambda value: (
        is_text(value, most_bytes=LONGEST_OWNER_NAME_BYTES) and len(value) <= LONGEST_OWNER_NAME
    ),
)
LEASE_SECONDS: Final = Rule(
    f"must be a number of seconds from {SHORTEST_LEASE_SECONDS} to {LONGEST_LEASE_SECONDS} (12 h); "
    "for longer work, let heartbeats renew it",
    _seconds(SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS),
)
LIMIT: Final = Rule(f"must be a whole number from 1 to {HIGHEST_LIMIT}", _whole(1, HIGHEST_LIMIT))
CEILING: Final = Rule(
    f"must be a whole number from 1 to {HIGHEST_LIMIT}, 0 to pause the lock, or null to lift what "
    "was set",
    lambda value: value is None or _is_whole(value, 0, HIGHEST_LIMIT),
)
DATA: Final = Rule(
    f"must be a JSON object of at most {LARGEST_DATA_BYTES} bytes of compact UTF-8 and {DEEPEST} "
    "levels, without NaN",
    _is_small_object,
    _fault_of_data,
)
EXECUTION_ARN: Final = Rule(
    "must be the ARN of a Standard workflow execution, arn:…:states:…:execution:…, or of a durable "
    "execution, arn:…:lambda:…/durable-execution/…; leave it out for an Express workflow, which "
    "Step Functions cannot describe",
    lambda value: (
        is_text(value, most_bytes=LONGEST_EXECUTION_ARN_BYTES)
        and (is_standard(value) or is_durable(value))
    ),
)
STANDARD_EXECUTION_ARN: Final = Rule(
    "must be the ARN of a Standard workflow execution, arn:…:states:…:execution:…; no other "
    "execution has heartbeats",
    lambda value: is_text(value, most_bytes=LONGEST_EXECUTION_ARN_BYTES) and is_standard(value),
)
TASK_TOKEN: Final = Rule(
    f"must be a task token of Step Functions, a string of 1 to {LONGEST_TASK_TOKEN} characters, or "
    "the id of a callback of a durable execution",
    lambda value: is_text(value, least_bytes=1, most_bytes=LONGEST_TASK_TOKEN),
)
PREFIX: Final = Rule(
    f"must be the beginning of lock names, a string of at most {LONGEST_LOCK_NAME_BYTES} bytes of "
    "UTF-8 without control characters",
    lambda value: is_text(value, most_bytes=LONGEST_LOCK_NAME_BYTES),
)
FENCING_TOKEN: Final = Rule(
    "must be the fencing token of the holder, a positive whole number",
    _whole(1, HIGHEST_FENCING_TOKEN),
)
REQUESTED_BY: Final = Rule(
    f"must tell who asks for this, a string of 1 to {LONGEST_REQUESTED_BY_BYTES} bytes of UTF-8 "
    "without control characters",
    lambda value: is_text(value, least_bytes=1, most_bytes=LONGEST_REQUESTED_BY_BYTES),
)
REASON: Final = Rule(
    f"must tell why, a string of 1 to {LONGEST_REASON_BYTES} bytes of UTF-8 without control "
    "characters",
    lambda value: is_text(value, least_bytes=1, most_bytes=LONGEST_REASON_BYTES),
)
CALLBACK_ID: Final = Rule(
    "must be the id of a callback of a durable execution, 1 to 1,024 characters of Base64",
    _matching(_CALLBACK_ID),
)
ONLY_NEWEST: Final = Rule(
    f"must be true, or the version of this caller, a whole number from 0 to {HIGHEST_VERSION:,}; "
    "leave it out to take turns",
    lambda value: value is True or _is_whole(value, 0, HIGHEST_VERSION),
)
PACE_RATE: Final = Rule(
    "must be a pair of numbers, such as (10, 60): how many, at least 1 and whole, and in how "
    f"many seconds, from 1 to {LONGEST_PERIOD_SECONDS:,} (31 days); at most {MOST_A_SECOND} a "
    "second",
    _is_rate,
)
BURST: Final = Rule(f"must be a whole number from 1 to {HIGHEST_BURST}", _whole(1, HIGHEST_BURST))
PACE_WAIT_SECONDS: Final = Rule(
    f"must be a number of seconds from 0 to {LONGEST_PACE_WAIT_SECONDS} (7 days)",
    _seconds(0, LONGEST_PACE_WAIT_SECONDS),
)
RESERVATION_ID: Final = Rule(
    "must be a string of 16 to 128 printable ASCII characters, unique to this reservation",
    _matching(_OWNER_ID),
)
ATTRIBUTE: Final = Rule(
    "must be the name of an attribute, a string of at most 255 bytes of UTF-8",
    lambda value: is_text(value, least_bytes=1, most_bytes=255),
)
FLAG: Final = Rule("must be true or false", lambda value: isinstance(value, bool))
EPOCH_MS: Final[Rule] = Rule(
    "must be a whole number of milliseconds since 1970",
    _whole(EARLIEST_EPOCH_MS, LATEST_EPOCH_MS),
    lambda value: (
        "must be milliseconds since 1970, not seconds: multiply by 1000, and round"
        if is_number(value, 1, EARLIEST_EPOCH_MS)
        else EPOCH_MS.sentence
    ),
)
TICKET: Final = Rule(
    "must be the ticket of an earlier answer, a whole number; or null for none",
    lambda value: value is None or _is_whole(value, 0, LATEST_EPOCH_MS),
)
RUN_OF_EXECUTION: Final = Rule(
    "must be how often the execution was redriven, $states.context.Execution.RedriveCount, a whole "
    "number; or null if that is not known",
    lambda value: value is None or _is_whole(value, 0, MOST_REDRIVES),
)
FALLBACK_SECONDS: Final = Rule(
    f"must be a number of seconds from 1 to {LONGEST_FALLBACK_SECONDS} (12 h)",
    _seconds(1, LONGEST_FALLBACK_SECONDS),
)


def require_different(field: str, names: Sequence[str]) -> None:
    """Raises `InvalidRequest` if a list has a lock twice: its second wait would not end."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        rule = "must have each lock once"
        raise InvalidRequest(field=field, rule=rule, value=twice[0], show_text=True)


def in_lock_order(names: Iterable[str]) -> list[str]:
    """Lock names in the one order in which everybody takes several: by their bytes in UTF-8.

    With two orders, two callers may each hold the lock that the other one waits for.
    """
    return sorted(names, key=str.encode)


def limit_of(limit: int, *, shared: bool) -> int:
    """How many may hold beside an owner with this `limit`; for a reader, 1 means the default."""
    require("limit", LIMIT, limit)
    return DEFAULT_READERS if shared and limit == 1 else int(limit)
