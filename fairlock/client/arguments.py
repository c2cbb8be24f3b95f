"""The arguments of both clients, their rules and defaults, and lock names made of parts."""

from __future__ import annotations

import inspect
import math
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    TypedDict,
    TypeGuard,
    TypeVar,
)

from fairlock.aws.retry import CLOCK
from fairlock.client.reporting import OnEvent, logger
from fairlock.clock import Clock, Seconds, in_seconds, lease_for
from fairlock.errors import InvalidRequest, explained
from fairlock.names import TABLE_NAME_VARIABLE
from fairlock.text import compact_json, missing_part, printable
from fairlock.wire import rules
from fairlock.wire.requests import version_of
from fairlock.wire.rules import LOCK_NAME, Rule, require

LONGEST_WAIT_SECONDS: Final = 7 * 24 * 3600
_LARGEST: Final = sys.float_info.max
_LONGEST_DEFAULT_NAME: Final = 256
_REMEMBERED_NAMES: Final = 16


_Callback = TypeVar("_Callback")


@dataclass(frozen=True, slots=True)
class LockOptions(Generic[_Callback]):
    """The arguments of `LockClient.acquire`, in their order."""

    name: str
    lease: Seconds | None
    max_wait: Seconds | None
    limit: int
    data: Mapping[str, Any] | None
    owner_name: str | None
    on_lost: _Callback | None
    on_danger: _Callback | None
    shared: bool = False
    max_hold: Seconds | None = None
    only_newest: bool | int = False

    def require_callbacks(self, *, of_asyncio: bool) -> None:
        """Raises `InvalidRequest` unless both callbacks can be called with a lock and a reason."""
        for field, value in (("on_lost", self.on_lost), ("on_danger", self.on_danger)):
            require_callable(field, value, "lock", "reason", of_asyncio=of_asyncio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a held lock is renewed, and how long before its end it is in danger, in seconds."""

    heartbeat_every: float | None
    safe_period: float | None

    def period(self, lease_seconds: float) -> float:
        """Seconds between renewals of such a lease."""
        return lease_seconds / 3 if self.heartbeat_every is None else self.heartbeat_every

    def safe(self, lease_seconds: float) -> float:
        """Seconds before the end of such a lease at which it is in danger."""
        return lease_seconds / 3 if self.safe_period is None else self.safe_period

    def warn_of_other_meaning(self, lease_seconds: float) -> None:
        """Logs a safe_period that was most likely meant as the seconds without a heartbeat.

        python_dynamodb_lock and the Java client count so; their usual 20 of 30 seconds are 10 here.
        """
        if self.safe_period is not None and self.safe_period > lease_seconds / 2:
            logger.warning(
                "safe_period=%g counts back from the end of the lease of %g s: danger is reported "
                "%g s after a renewal. If you meant %g s without a heartbeat, give safe_period=%g",
                *(self.safe_period, lease_seconds, lease_seconds - self.safe_period),
                *(self.safe_period, lease_seconds - self.safe_period),
            )

    def require_room(self, lease_seconds: float, *, blamed: str = "lease") -> None:
        """Raises `InvalidRequest` if a lock would be in danger although its renewals succeed.

        Of a client (`blamed` is "timing"), the field at fault is one of these, if only one is set.
        """
        period, safe = self.period(lease_seconds), self.safe(lease_seconds)
        needed, rule = safe, f"must be at least 2 % longer than safe_period ({safe:g} s)"
        if period != math.inf:
            needed += period
            rule = (
                "must be at least 2 % longer than heartbeat_every and safe_period together "
                f"({period:g} s + {safe:g} s)"
            )
        if lease_for(needed) < lease_seconds:
            return
        if blamed == "timing" and (self.safe_period is None or self.heartbeat_every is None):
            field = "heartbeat_every" if self.safe_period is None else "safe_period"
            other = lease_seconds / 3  # The default of both.
            most = math.floor((lease_seconds / lease_for(1) - other) * 100) / 100
            rule = (
                f"must be below {most:g} with a lease of {lease_seconds:g} s: with the "
                f"{'safe_period' if self.safe_period is None else 'heartbeat_every'} of "
                f"{other:g} s it must leave 2 % of the lease"
            )
            raise InvalidRequest(field=field, rule=rule, value=getattr(self, field))
        least = math.ceil(lease_for(needed) * 100 + 1) / 100
        rule = f"{rule}: at least {least:g} s"
        raise InvalidRequest(field="lease", rule=rule, value=lease_seconds)

    def require_hold(self, max_hold: object, lease_seconds: float) -> None:
        """Raises `InvalidRequest` if a lock would be in danger from its first moments on."""
        period, safe = self.period(lease_seconds), self.safe(lease_seconds)
        least = safe if period == math.inf else period + safe
        if _is_number(max_hold) and least <= max_hold < math.inf:
            return
        rule = (
            f"must be a number of seconds, at least {least:g} with a lease of {lease_seconds:g} s "
            "(heartbeat_every and safe_period together); give a shorter lease as well, or leave "
            "max_hold out"
        )
        refuse("max_hold", rule, max_hold)


class EnteredOneWay:
    """What is entered by `with`, or by `async with`, and refuses the other by name."""

    if not TYPE_CHECKING:  # Type checkers refuse it, too.

        def __enter__(self) -> NoReturn:
            """Overridden by what `with` enters."""
            rule = f"must be `async with` for {type(self).__name__}"
            refuse("with", rule, self)

        def __aenter__(self) -> NoReturn:
            """Overridden by what `async with` enters."""
            rule = f"must be `with` for {type(self).__name__}; for asyncio see AsyncLockClient"
            refuse("with", rule, self)

        def __exit__(self, *_error: object) -> None:
            """Python asks for it before it enters."""

        async def __aexit__(self, *_error: object) -> None:
            """The same."""


class AskedEvent:
    """An event that refuses to be a condition itself: Python takes every event for true."""

    if not TYPE_CHECKING:  # Type checkers know events without it.

        def __bool__(self) -> NoReturn:  # noqa: PLE0304 - it never answers
            """Raises: `if lock.lost:` would be true while the lock is held."""
            rule = "is an event, and no condition: ask is_set(), as in `if lock.lost.is_set():`"
            refuse("event", rule, self)


class NotThere(InvalidRequest, AttributeError):  # noqa: N818 - it is an InvalidRequest
    """A lock's attribute is asked for before there is a lock.

    It is an AttributeError too, so that `hasattr`, copies and debuggers see no such attribute.
    Everywhere else it is the `InvalidRequest` that the documents name.
    """

    __module__, __qualname__ = InvalidRequest.__module__, InvalidRequest.__qualname__

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes an `InvalidRequest`: this class is not found by its name."""
        rebuild, (_, args), state = super().__reduce__()
        return rebuild, (InvalidRequest, args), state


NotThere.__name__ = InvalidRequest.__name__


_Class = TypeVar("_Class", bound=type)


def with_explained_calls(kind: _Class) -> _Class:
    """Makes each public method of a client `explained`, those of its bases included."""
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, explained(method))
    return kind


def refuse(field: str, rule: str, value: object) -> NoReturn:
    """Raises `InvalidRequest`, without text: an owner_id may stand in the wrong place."""
    raise InvalidRequest(field=field, rule=rule, value=value, show_text=False) from None


def require_seconds(
    field: str, value: object, *, least: float, most: float, advice: str = ""
) -> None:
    """Raises `InvalidRequest` unless the value is a number within bounds."""
    sentence = f"must be a number of seconds from {least:g} to {most:g}{advice}"
    require(
        field, Rule(sentence, lambda given: _is_number(given) and least <= given <= most), value
    )


def _is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a number to calculate with. A whole one may be beyond any float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) <= _LARGEST


def require_finite(field: str, value: object) -> None:
    """Raises `InvalidRequest` unless the value is a length of time; the client knows the least."""
    if not _is_number(value) or not 0 < value < math.inf:
        refuse(field, "must be a number of seconds above 0; leave it out for no bound", value)


def require_max_wait(value: object) -> None:
    """Raises `InvalidRequest` unless the value is a number of seconds that the queue allows."""
    advice = " (7 days); 0 does not wait"
    require_seconds("max_wait", value, least=0, most=LONGEST_WAIT_SECONDS, advice=advice)


def checked_owner_id(value: object) -> str:
    """The owner_id; says how to come by it if it is the lock."""
    if hasattr(value, "owner_id"):
        refuse("owner_id", "must be the text that proves ownership: pass lock.owner_id", value)
    return rules.plain_text("owner_id", rules.OWNER_ID, value)  # type: ignore[arg-type]  # the rule


def require_callable(field: str, value: object, *takes: str, of_asyncio: bool = False) -> None:
    """Raises `InvalidRequest` unless the value can be called in the background, or is None."""
    if value is None:
        return
    if inspect.iscoroutinefunction(value) and not of_asyncio:
        refuse(field, "must be a plain function: no event loop would run a coroutine", value)
    rule = f"must be a function of {' and '.join(takes)}: lambda {', '.join(takes)}: …"
    if not takes:
        rule = "must be a function without arguments: pass lock.release, not lock.release()"
    if not callable(value):
        refuse(field, rule, value)
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # A function of C that does not tell.
        return
    try:
        signature.bind(*takes)
    except TypeError:
        refuse(field, rule, value)


def require_bool(field: str, value: object) -> None:
    """Raises `InvalidRequest` unless the value is True or False."""
    if not isinstance(value, bool):
        refuse(field, "must be True or False", value)


def checked_version(only_newest: object) -> int | None:
    """The version that `only_newest` names; None if the caller takes its turn."""
    if only_newest is False:
        return None
    rules.require("only_newest", rules.ONLY_NEWEST, only_newest)
    return version_of(only_newest)


def as_text(data: Mapping[str, Any] | None) -> str | None:
    """The data as it is stored; `InvalidRequest` if it is no small JSON object."""
    if data is None:
        return None
    plain = dict(data) if isinstance(data, Mapping) else data
    rules.require("data", rules.DATA, plain)
    return compact_json(plain)


def default_owner_name(program: str | None = None) -> str:
    """`host:process:program`, or the function's name in place of the program in Lambda."""
    function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME")
    try:
        host = socket.gethostname()
    except (OSError, UnicodeError):
        host = "unknown-host"
    return _owner_name(host, os.getpid(), program or function_name, sys.argv[0])


@lru_cache(_REMEMBERED_NAMES)
def _owner_name(host: str, process_id: int, program: str | None, script: str) -> str:
    program = program or Path(script or "python").name
    return printable(f"{host}:{process_id}:{program}")[:_LONGEST_DEFAULT_NAME]


@lru_cache(_REMEMBERED_NAMES)
def warn_of_missing_part(name: str) -> None:
    """Logs once that a name was most likely formatted from a value that was missing."""
    if (part := missing_part(name)) is not None:
        logger.warning(
            "lock %r: its part %r looks like a missing value, and all callers without the value "
            'share this lock; pass the value: composite_name("customer", customer_id) refuses None '
            "and empty text",
            *(name, part),
        )


def composite_name(*parts: str) -> str:
    """Joins parts with slashes: `composite_name("customer", customer_id)`.

    Guaranteed: other parts make another name, even if a part contains a slash, which becomes `%2F`
    (and a percent sign `%25`). The simpler `f"{a}/{b}"` makes one name of `a/b` + `c` and of
    `a` + `b/c`. Parts without these two characters stay as they are.

    Raises:
        InvalidRequest: there is no part, one is no string or empty, or the name breaks the rule of
            names.
    """
    for part in parts:
        if not isinstance(part, str) or not part:
            rule = "must be strings: pass str(part), and a value that is not missing or empty"
            raise InvalidRequest(field="parts", rule=rule, value=part)
    name = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    require("name", LOCK_NAME, name)
    return name


_LEAST_DEFAULT_WAIT_SECONDS: Final = 120.0
_DEFAULT_WAIT_IN_LEASES: Final = 2
"""A crashed holder is replaced a little after the end of its lease."""
_SHORTEST_PERIOD_SECONDS: Final = 0.05
_MOST_WORKERS: Final = 1000


class ClientOptions(TypedDict, total=False):
    """The settings of a client by name, with the meaning and the defaults of `LockClient`."""

    owner_name: str | None
    lease: Seconds
    max_wait: Seconds | None
    heartbeat_every: Seconds | None
    safe_period: Seconds | None
    longest_poll: Seconds
    max_workers: int
    best_effort_release: bool
    on_event: OnEvent | None


class ClientSettings:
    """The arguments of a client, as `LockClient` describes them, but for its AWS clients."""

    @explained
    def __init__(
        self,
        table_name: str | None,
        *,
        machine_clock: Callable[[], Clock],
        session: object = None,
        client: object = None,
        stepfunctions: object = None,
        clock: Clock | Literal["system"] | None = None,
        owner_name: str | None = None,
        lease: Seconds = rules.DEFAULT_LEASE_SECONDS,
        max_wait: Seconds | None = None,
        heartbeat_every: Seconds | None = None,
        safe_period: Seconds | None = None,
        longest_poll: Seconds = 5.0,
        max_workers: int = 32,
        best_effort_release: bool = True,
        on_event: OnEvent | None = None,
    ) -> None:
        """Checks all rules."""
        del session, client, stepfunctions
        self.table_name = table_or_default(table_name)
        self.owner_name = owner_name
        self.lease = in_seconds(lease)
        self.max_wait = in_seconds(max_wait)
        self.timing = Timing(
            heartbeat_every=in_seconds(heartbeat_every), safe_period=in_seconds(safe_period)
        )
        self.longest_poll = in_seconds(longest_poll)
        self.max_workers = max_workers
        self.best_effort_release = best_effort_release
        self.on_event = on_event
        self.clock = machine_clock() if clock is None or clock == "system" else clock
        self.uses_dates = clock != "system"
        if owner_name is not None:
            rules.require("owner_name", rules.OWNER_NAME, owner_name)
        rules.require("lease", rules.LEASE_SECONDS, self.lease)
        if self.max_wait is not None:
            require_max_wait(self.max_wait)
        least = _SHORTEST_PERIOD_SECONDS
        for name in ("heartbeat_every", "safe_period"):
            seconds = getattr(self.timing, name)
            if seconds is not None:
                require_seconds(name, seconds, least=least, most=math.inf)
        self.timing.require_room(self.lease, blamed="timing")
        require_seconds("longest_poll", self.longest_poll, least=least, most=3600)
        if type(max_workers) is not int or not 1 <= max_workers <= _MOST_WORKERS:
            refuse("max_workers", f"must be a whole number from 1 to {_MOST_WORKERS}", max_workers)
        rules.require("table_name", rules.TABLE_NAME, self.table_name, show_text=True)
        rules.require("clock", CLOCK, self.clock)
        require_bool("best_effort_release", best_effort_release)
        require_callable("on_event", on_event, "event")

    def longest_wait(self, lease: Seconds | None) -> float:
        """Seconds that `acquire` waits by default for a lock with such a lease."""
        lease = self.lease if lease is None else in_seconds(lease)
        rules.require("lease", rules.LEASE_SECONDS, lease)
        if self.max_wait is not None:
            return self.max_wait
        return max(_LEAST_DEFAULT_WAIT_SECONDS, _DEFAULT_WAIT_IN_LEASES * lease)


def table_or_default(table_name: str | None) -> str:
    """The lock table that was named, or else that of the environment."""
    table = os.environ.get(TABLE_NAME_VARIABLE) if table_name is None else table_name
    if table_name is None and not table:
        rule = (
            f"give the name of the lock table, set {TABLE_NAME_VARIABLE} to it, or make the client "
            "by `from_stack`"
        )
        raise InvalidRequest(field="table_name", rule=rule, missing=True)
    if hasattr(table, "transact_write_items"):
        rule = 'must be the name of the lock table: pass a client as LockClient("locks", client=…)'
        raise InvalidRequest(field="table_name", rule=rule, value=table)
    return table or ""
