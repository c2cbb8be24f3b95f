"""What a call of a locked function asks for: the lock's name, and how long to wait and to hold."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from leasehold.decorator.lock_name import NameOf, template
from leasehold.errors import InvalidRequest
from leasehold.wire.rules import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS

IfTaken = Literal["wait", "skip", "raise"]

LOCK_PARAMETER: Final = "lock"
_AFTER_THE_DEADLINE_SECONDS: Final = 1.0
"""A Lambda function that timed out is stopped a little later than it was told."""
_WORTH_A_REQUEST_SECONDS: Final = 2.0
"""By so much a lease is too long that is shortened when the lock has been waited for."""
_TO_SAY_SO_SECONDS: Final = 1.0
"""Left of the invocation for a wait that was in vain: to leave the queue, and to fail by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call.

    Attributes:
        name: the lock's name.
        lease: seconds; None takes the client's.
        wait: seconds; None takes the client's.
        most_wait: no wait may be longer.
        heartbeats: whether the lease has to be renewed while the function runs.
        lives_on: whether the process will be there for as long as it likes, to watch others.
        lease_to_the_end: the lease that lasts until the end, as of now; None if it has no end.
    """

    name: str
    lease: float | None
    wait: float | None
    most_wait: float
    heartbeats: bool
    lives_on: bool
    lease_to_the_end: Callable[[], float] | None = None

    def wait_with(self, default: float) -> float:
        """Seconds to wait, with a client whose locks wait so long by default."""
        return min(default if self.wait is None else self.wait, self.most_wait)

    def shorter_lease(self, lease: float) -> float | None:
        """What is left of a lease that was to last to the end, if a wait has used up some of it."""
        if self.lease_to_the_end is None:
            return None
        left = self.lease_to_the_end()
        return left if left < lease - _WORTH_A_REQUEST_SECONDS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known of a locked function when it is decorated.

    Attributes:
        signature: as its callers see it: without the parameter that gets the lock.
        passes_lock: whether there is such a parameter.
    """

    signature: inspect.Signature
    passes_lock: bool
    name_of: NameOf
    lease: float | None
    wait: float | None

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """What this call asks for.

        Raises:
            InvalidRequest: no name can be formed from its arguments.
            TypeError: they are not the function's.
        """
        self.signature.bind(*args, **kwargs)
        name = self.name_of(*args, **kwargs)
        seconds_left = _seconds_left_of(args)
        if seconds_left is None:
            return Call(
                name=name,
                lease=self.lease,
                wait=self.wait,
                most_wait=math.inf,
                heartbeats=True,
                lives_on=True,
            )
        to_the_end = partial(_lease_for, seconds_left) if self.lease is None else None
        return Call(
            name=name,
            lease=self.lease if to_the_end is None else to_the_end(),
            wait=self.wait,
            most_wait=max(0.0, seconds_left() - _TO_SAY_SO_SECONDS),
            heartbeats=to_the_end is None,
            lives_on=False,
            lease_to_the_end=to_the_end,
        )


def plan_for(
    function: Callable[..., Any], name: str | NameOf, *, lease: float | None, wait: float | None
) -> Plan:
    """Looks at a function that is being decorated.

    Raises:
        InvalidRequest: it cannot be locked so.
    """
    if not callable(function):
        rule = "must be a function; below @staticmethod and @classmethod, not above"
        raise InvalidRequest(field="function", rule=rule, value=function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        rule = "must not be a generator: it runs when its lock has been released already"
        raise InvalidRequest(field="function", rule=rule, value=function)
    signature, passes_lock = _without_lock(inspect.signature(function))
    name_of = template(name, signature) if isinstance(name, str) else name
    if not callable(name_of):
        rule = "must be a string, or a function that makes one from the arguments of a call"
        raise InvalidRequest(field="name", rule=rule, value=name)
    return Plan(
        signature=signature, passes_lock=passes_lock, name_of=name_of, lease=lease, wait=wait
    )


def _without_lock(signature: inspect.Signature) -> tuple[inspect.Signature, bool]:
    lock = signature.parameters.get(LOCK_PARAMETER)
    if lock is None or lock.kind in {lock.VAR_POSITIONAL, lock.VAR_KEYWORD}:
        return signature, False
    if lock.kind is lock.POSITIONAL_ONLY:
        rule = "must not be positional-only, as it gets the lock by its name"
        raise InvalidRequest(field=LOCK_PARAMETER, rule=rule, value=str(signature))
    others = [one for one in signature.parameters.values() if one is not lock]
    by_position = [one for one in signature.parameters.values() if one.kind <= lock.VAR_POSITIONAL]
    if lock.kind is not lock.KEYWORD_ONLY and by_position[-1] is not lock:
        rule = "must be the last parameter or keyword-only, as it gets the lock"
        raise InvalidRequest(field=LOCK_PARAMETER, rule=rule, value=str(signature))
    return signature.replace(parameters=others), True


def refuse_coroutine(result: object) -> None:
    """Raises `InvalidRequest` if a plain function has returned a coroutine.

    Its body has not run yet, and would run when the lock has been released.
    """
    if inspect.iscoroutine(result):
        result.close()
        rule = "must be a coroutine function (async def) if it returns a coroutine"
        raise InvalidRequest(field="function", rule=rule, value=result)


def _seconds_left_of(args: Sequence[Any]) -> Callable[[], float] | None:
    """Of an invocation, if the second argument is the context of a Lambda function."""
    if len(args) < 2:  # noqa: PLR2004 - event and context
        return None
    remaining = getattr(args[1], "get_remaining_time_in_millis", None)
    return (lambda: remaining() / 1000) if callable(remaining) else None


def _lease_for(seconds_left: Callable[[], float]) -> float:
    to_the_end = max(seconds_left() + _AFTER_THE_DEADLINE_SECONDS, SHORTEST_LEASE_SECONDS)
    return min(to_the_end, LONGEST_LEASE_SECONDS)
