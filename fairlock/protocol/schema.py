"""The lock table: every key and attribute name, spelled once, and the conditions on them.

    pk                        sk      attributes
    LOCK#<lock_name>          STATE   fencing_token, held, contended, wait_seq, last_released,
                                      last_given_up, limit, expiry_time, retain_until, executions,
                                      released_at, last_forced_release, newest, newest_token,
                                      ceiling, last_ceiling,
                                      holder:<owner_id>…, token:<owner_id>…, or h:… and t:…
    LOCK#<lock_name>          WAITER#<entered_at_ms>#<owner_id>
                                      what the waiter asks for, how to wake it, asked_at_ms
    EXECUTION#<execution_arn> LOCK#<lock_name>#<owner_id>#<length of owner_id>
                                      the claim of a workflow: a lock to free when it is over;
                                      ended, done, fenced (how far the reaper is), asked_at_ms,
                                      redrives, written_at_ms
    PACE#<name>               PACE    next_slot_us, slot_us, reservation_id, expiry_time (`pace.py`)

docs/protocol.md says what the attributes mean. Each holder is a top-level attribute: DynamoDB
refuses to set `holders.x` on an item that has no `holders` yet, so with one map of holders the
first acquire would take two requests. UUIDs are stored in 20 characters instead of 36.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from fairlock.protocol.table_requests import Item, Returns, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


Values: TypeAlias = "dict[str, AttributeValueTypeDef]"
_REMEMBERED: Final = 512
"""Each request names its owner several times. And far more than there are expressions, unless many
holders are evicted at once."""


@lru_cache(_REMEMBERED)
def shorten(text: str) -> str | None:
    """A UUID, as it is usually written, in 20 ASCII characters; None if the text is none."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return base64.b85encode(found.bytes).decode() if str(found) == text else None


@lru_cache(_REMEMBERED)
def lengthen(short: str) -> str:
    """The UUID of which these are the 20 characters."""
    return str(uuid.UUID(bytes=base64.b85decode(short)))


PARTITION_KEY: Final = "pk"
SORT_KEY: Final = "sk"
TTL_ATTRIBUTE: Final = "expiry_time"

FENCING_TOKEN: Final = "fencing_token"
HELD: Final = "held"
CONTENDED: Final = "contended"
WAIT_SEQ: Final = "wait_seq"
RETAIN_UNTIL: Final = "retain_until"
LAST_RELEASED: Final = "last_released"
LAST_GIVEN_UP: Final = "last_given_up"
"""Who gave up without having held or waited: beside `last_released`, so that a caller that had
nothing to release cannot wipe the mark of one that had."""
RELEASED_AT: Final = "released_at"
LAST_FORCED_RELEASE: Final = "last_forced_release"
NEWEST: Final = "newest"
NEWEST_TOKEN: Final = "newest_token"
CEILING: Final = "ceiling"
"""There only while a ceiling stands: the first write of an acquire asks that it is not."""
LAST_CEILING: Final = "last_ceiling"
CHANGE: Final = "change"
"""In `LAST_CEILING`: how often the ceiling was changed, which no late copy can know."""

EXECUTIONS: Final = "executions"

HOLDER_PREFIX: Final = "holder:"
TOKEN_PREFIX: Final = "token:"
SHORT_HOLDER_PREFIX: Final = "h:"
SHORT_TOKEN_PREFIX: Final = "t:"

HOLDER_ACQUIRED_AT_MS: Final = "a"
HOLDER_EXPIRES_AT_MS: Final = "e"
HOLDER_LEASE_MS: Final = "l"
HOLDER_LIMIT: Final = "n"
HOLDER_REVISION: Final = "r"
HOLDER_OWNER_NAME: Final = "o"
HOLDER_DATA: Final = "d"
HOLDER_EXECUTION: Final = "x"
"""The ARN of the holder's execution, without what `EXECUTIONS` of the item says."""
HOLDER_EXECUTION_ARN: Final = "arn"
"""The whole ARN, if it begins otherwise."""
HOLDER_UNDELIVERED: Final = "u"
HOLDER_PUSHED: Final = "p"
HOLDER_SHARED: Final = "s"
"""There if the holder shares the lock with others; a plain lock stores nothing for it."""

OWNER_NAME: Final = "owner_name"
EXPIRES_AT_MS: Final = "expires_at_ms"
LEASE_MS: Final = "lease_ms"
REVISION: Final = "revision"
DATA: Final = "data"
EXECUTION_ARN: Final = "execution_arn"

LOCK_NAME: Final = "lock_name"
OWNER_ID: Final = "owner_id"
LIMIT: Final = "limit"
SHARED: Final = "shared"
ENTERED_AT_MS: Final = "entered_at_ms"
ASKED_AT_MS: Final = "asked_at_ms"
ONLY_NEWEST: Final = "only_newest"
TASK_TOKEN: Final = "task_token"
POLL_INTERVAL_MS: Final = "poll_interval_ms"

ENDED: Final = "ended"
DONE: Final = "done"
FENCED: Final = "fenced"
REDRIVES: Final = "redrives"
"""Which run of the execution wrote the claim: how often it had been redriven."""
WRITTEN_AT_MS: Final = "written_at_ms"

NEXT_SLOT_US: Final = "next_slot_us"
SLOT_US: Final = "slot_us"
RESERVATION_ID: Final = "reservation_id"

_CONSTANTS: Final = {n: v for n, v in tuple(vars().items()) if n.isupper() and isinstance(v, str)}
RETENTION_MS: Final = 48 * 3_600_000
"""How long an item outlives its last write. Far longer than the longest lease (12 h) and than any
clock error, so that TTL never deletes a holder, and a new fencing token seed is never behind."""
WORKFLOW_RETENTION_MS: Final = 400 * 24 * 3_600_000
"""How long a lock's item outlives its last grant to a workflow. Such a holder needs no heartbeat:
it holds as long as its execution runs, which Step Functions ends after a year."""
FOREVER_SECONDS: Final = 253_402_300_799
"""The end of the year 9999: TTL does not delete a lock with a ceiling, however long no one writes.
"""
REDRIVABLE_MS: Final = 15 * 24 * 3_600_000
"""How long the claim of an execution that is over stays. Step Functions redrives for 14 days."""
DONE_CLAIM_RETENTION_MS: Final = 3_600_000
"""How long the claim of a released acquisition stays, to refuse late calls: longer than any call of
a function can be under way."""
DEAD_WAITER_RETENTION_MS: Final = 3_600_000
"""How long the item of a waiter that stopped asking stays; far longer than any clock error."""
LONGEST_FALLBACK_SECONDS: Final = 12 * 3600
"""A waiter with a task token asks again at least so often."""
WAITER_GRACE_MS: Final = 60_000
"""How late a waiter with a task token may ask again: the pause between two fallback periods, 10 s
at most, a cold start, and some repeats. One that comes later still gets its place back from its
claim, and was only passed over meanwhile."""

STATE: Final = "STATE"
PACE: Final = "PACE"
"""The sort key of a pace. It is not that of a lock, so no reader of locks meets it."""
LOCK_PREFIX: Final = "LOCK#"
WAITER_PREFIX: Final = "WAITER#"


def lock_key(lock_name: str) -> Values:
    """The key of a lock's state."""
    return {PARTITION_KEY: {"S": partition_of(lock_name)}, SORT_KEY: {"S": STATE}}


def holder_attribute(owner_id: str) -> str:
    """The attribute of a lock's item that has the record of this holder."""
    short = shorten(owner_id)
    return f"{HOLDER_PREFIX}{owner_id}" if short is None else f"{SHORT_HOLDER_PREFIX}{short}"


def token_attribute(owner_id: str) -> str:
    """The attribute of a lock's item that has the fencing token of this holder."""
    short = shorten(owner_id)
    return f"{TOKEN_PREFIX}{owner_id}" if short is None else f"{SHORT_TOKEN_PREFIX}{short}"


def waiter_key(lock_name: str, *, entered_at_ms: int, owner_id: str) -> Values:
    """The key of a waiter: in order of entry, and the same whenever the same waiter asks again."""
    sort_key = waiter_sort_key(entered_at_ms=entered_at_ms, owner_id=owner_id)
    return {PARTITION_KEY: {"S": partition_of(lock_name)}, SORT_KEY: {"S": sort_key}}


def waiter_sort_key(*, entered_at_ms: int, owner_id: str) -> str:
    """The sort key of a waiter."""
    return f"{WAITER_PREFIX}{entered_at_ms:015d}#{owner_id}"


def partition_of(lock_name: str) -> str:
    """The partition in which a lock and its waiters are."""
    return f"{LOCK_PREFIX}{lock_name}"


def claim_key(execution_arn: str, *, lock_name: str, owner_id: str) -> Values:
    """The key of a claim. Names and owner ids may contain `#`: the length tells them apart."""
    sort_key = f"LOCK#{lock_name}#{owner_id}#{len(owner_id)}"
    return {PARTITION_KEY: {"S": partition_of_execution(execution_arn)}, SORT_KEY: {"S": sort_key}}


def partition_of_execution(execution_arn: str) -> str:
    """The partition in which the claims of a workflow execution are."""
    return f"EXECUTION#{execution_arn}"


def partition_of_pace(name: str) -> str:
    """The partition of a pace, apart from that of a lock with the same name."""
    return f"{PACE}#{name}"


def pace_key(name: str) -> Values:
    """The key of a pace."""
    return {PARTITION_KEY: {"S": partition_of_pace(name)}, SORT_KEY: {"S": PACE}}


def ttl_seconds(now_ms: int, retention_ms: int = RETENTION_MS) -> int:
    """When TTL may delete an item written now: epoch **seconds**, as DynamoDB's TTL wants it."""
    return (now_ms + retention_ms) // 1000


_T = TypeVar("_T")
I_HOLD: Final = "attribute_exists(#mine)"
MY_GRANT: Final = "#my_token = :seen_grant"
"""The fencing token names a grant; the owner_id may have another one by now."""
I_DO_NOT_HOLD: Final = "attribute_not_exists(#mine)"
NOT_RELEASED_BY_ME: Final = (
    "(attribute_not_exists(#last_released) OR #last_released <> :me)"
    " AND (attribute_not_exists(#last_given_up) OR #last_given_up <> :me)"
)
NOT_CONTENDED: Final = "attribute_not_exists(#contended)"
WAIT_SEQ_UNMOVED: Final = "#wait_seq = :wait_seq"
"""No owner has joined the queue since."""

NEXT_TOKEN: Final = "if_not_exists(#fencing_token, :seed) + :one"
"""The seed is the epoch in microseconds. Grants are slower than one a microsecond, so a lock that
TTL removed and that is created again starts above every token it has ever issued."""

_NAMES: Final = {
    f"#{value}": value for name, value in _CONSTANTS.items() if not name.startswith("HOLDER_")
} | {
    f"#h_{name.removeprefix('HOLDER_').lower()}": value
    for name, value in _CONSTANTS.items()
    if name.startswith("HOLDER_")
}
"""Each attribute of the schema has its own name in expressions. Those of a holder's record
are short, and stand under the names of their constants: `#h_lease_ms`."""
_PLACEHOLDER: Final = re.compile(r"[#:]\w+")


def token_seed(now_ms: int) -> int:
    """The number below the first fencing token of an item: the epoch in microseconds."""
    return now_ms * 1000


def all_of(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(conditions)


def number(value: int) -> AttributeValueTypeDef:
    """A DynamoDB number."""
    return {"N": str(value)}


def attributes(values: Mapping[str, str | int | None]) -> Values:
    """Values as DynamoDB stores them; none for None, nor for False, which is not stored."""
    stored: Values = {}
    for name, value in values.items():
        if value is True:
            stored[name] = {"BOOL": True}
        elif value is not None and value is not False:
            stored[name] = {"S": value} if isinstance(value, str) else number(value)
    return stored


def names_in(expression: str) -> dict[str, str]:
    """The names that an expression uses: DynamoDB refuses any other name."""
    return _used_in(_placeholders(expression), _NAMES)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an update: on which condition it happens, and what it changes.

    Attributes:
        condition: what must hold of the item; empty if nothing.
        values: the values that its expressions use; others do no harm.
        sets: what it assigns, separated by commas.
        adds: what it adds to a number.
        removes: the attributes that it removes, by their names in expressions.
    """

    condition: str = ""
    values: Item = field(default_factory=dict)
    sets: str = ""
    adds: str = ""
    removes: Mapping[str, str] = field(default_factory=dict)


def conditional_update(
    key: Item, *parts: Part | str, owner_id: str = "", returns: Returns = "ALL_NEW", now_ms: int = 0
) -> Update:
    """An update made of parts, or of conditions; it declares what it uses.

    Its expressions may use `#mine`, `#my_token` and `:me` of the owner, and of a write at `now_ms`
    the times `:now`, `:expiry_time` and `:retain_until`, and the `:seed` of a token.
    """
    names = {"#mine": holder_attribute(owner_id), "#my_token": token_attribute(owner_id)}
    values: Values = {
        ":one": {"N": "1"},
        ":yes": {"BOOL": True},
        ":me": {"S": owner_id},
        ":now": number(now_ms),
        ":seed": number(token_seed(now_ms)),
        ":expiry_time": number(ttl_seconds(now_ms)),
        ":retain_until": number(ttl_seconds(now_ms, WORKFLOW_RETENTION_MS)),
    }
    conditions, sets, adds, removes = list[str](), list[str](), list[str](), list[str]()
    for part in parts:
        if isinstance(part, str):
            conditions.append(part)
            continue
        conditions.append(part.condition)
        sets.append(part.sets)
        adds.append(part.adds)
        removes += part.removes
        names |= part.removes
        values |= part.values
    change = ""
    for verb, what in (("SET", sets), ("ADD", adds), ("REMOVE", removes)):
        if said := ", ".join(filter(None, what)):
            change += f"{verb} {said} "
    change, condition = change.rstrip(), all_of(*filter(None, conditions))
    placeholders = _placeholders(f"{change} {condition}")
    return Update(
        key=key,
        change=change,
        condition=condition,
        names=_used_in(placeholders, names) | _used_in(placeholders, _NAMES),
        values=_used_in(placeholders, values),
        returns=returns,
    )


@lru_cache(_REMEMBERED)
def _placeholders(expression: str) -> tuple[str, ...]:
    """The names and values that an expression uses: of few expressions, for many requests."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(expression)))


def _used_in(placeholders: Sequence[str], meanings: Mapping[str, _T]) -> dict[str, _T]:
    return {name: meanings[name] for name in placeholders if name in meanings}
