"""The guard's own states. All are JSONata states, legal in JSONPath and in JSONata machines.

After the grant come the work and the release. With keep_alive both are in a branch:

    ┌ Work ──────────────────────────────────┐
    │  the work ──▶ Release, ends Heartbeat  │
    │  Heartbeat ──▶ Heartbeat ──▶ …         │
    └────────────────────────────────────────┘

In either form an error of the work leads to a release of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.fragments import ANY_ERROR, WorkflowVariable, is_jsonata, jsonata
from fairlock.cdk.guard.service_calls import ServiceCalls
from fairlock.errors import LockWaitTimeout, Superseded

_REDRIVEN_AT: Final = "$states.context.Execution.RedriveTime"
_REDRIVEN_AT_MS: Final = f"($exists({_REDRIVEN_AT}) ? $toMillis({_REDRIVEN_AT}) : 0)"

_SHOWN_HOLDERS: Final = 5
_LONGEST_CAUSE: Final = 32_768
"""Step Functions cuts off a longer cause. Whether it counts characters or bytes is not documented:
this many bytes are right either way."""
_MOST_BYTES: Final = "$length($replace($text, /[^ -~]/, 'four'))"
"""An upper bound of the bytes of `$text`: a character has four at most in UTF-8."""
_RESULT_AS_TEXT: Final = "$string({'result': $states.input})"
RESULT_IN_CAUSE: Final = jsonata("$parse($states.errorOutput.Cause).result")
"""The output of the Catch of the error that `not_released_beside_a_heartbeat` raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStates(ServiceCalls):
    """Makes the states of one guard. Of several locks, the wait of the `first` is that of all."""

    first: WorkflowVariable | None = None

    @property
    def begins(self) -> bool:
        """Whether the guard waits for this lock first, or for no other one."""
        return self.first in (None, self.variable)

    def order(self, names: str) -> sfn.Pass:
        """Brings the names of several locks into the order in which the guard takes them."""
        name = self.variable.state_name("Order")
        return sfn.Pass.jsonata(self.scope, name, assign={f"{self.variable.name}_names": names})

    def enter(self, lock_name: str) -> sfn.Pass:
        """Makes the owner id and the time of entry once, for all calls of this acquisition."""
        first = self.first
        lock = {
            "lock_name": lock_name,
            "owner_id": jsonata("$uuid()"),
            "waiting_since_ms": jsonata("$millis()")
            if self.begins or first is None
            else first.jsonata("waiting_since_ms"),
            "restarts": 0,
            **self.options.evaluated,
        }
        name = self.variable.state_name("Enter")
        entered = {f"{first.name}_entered": lock_name} if first else {}
        return sfn.Pass.jsonata(self.scope, name, assign={self.variable.name: lock, **entered})

    def wait(self, seconds: str, *, assign: str | None = None) -> sfn.Wait:
        """Waits, but never past the deadline, so that the last try falls on it."""
        pause = f"$max([1, $min([{seconds}, $ceil(({self._wait_ends_ms} - $millis()) / 1000)])])"
        return sfn.Wait.jsonata(
            self.scope,
            self.variable.state_name("Wait"),
            time=sfn.WaitTime.seconds(jsonata(pause)),
            assign=None if assign is None else {self.variable.name: jsonata(assign)},
        )

    @property
    def is_too_late(self) -> str:
        """Whether the wait is over, however often the acquisition started again meanwhile."""
        return f"$millis() >= {self._wait_ends_ms}"

    @property
    def _wait_ends_ms(self) -> str:
        """A redrive begins the wait once more: it may come days after the execution was stopped."""
        began_ms = f"$max([{self.variable.field('waiting_since_ms')}, {_REDRIVEN_AT_MS}])"
        return f"{began_ms} + {self.options.max_wait_seconds * 1000}"

    def branches(self, purpose: str, *branches: sfn.IChainable) -> sfn.Parallel:
        """Runs chains as branches, which they cannot leave. The result is that of the first one."""
        name = self.variable.state_name(purpose)
        first = jsonata("$states.result[0]")
        return sfn.Parallel.jsonata(self.scope, name, outputs=first).branch(*branches)

    def not_released(self) -> sfn.Pass:
        """Follows a release that failed for good: the lock ends with the execution."""
        return sfn.Pass.jsonata(
            self.scope,
            self.variable.state_name("Not released"),
            comment="Best effort: the result of the work stands; the lock ends with the execution.",
        )

    def not_released_beside_a_heartbeat(self) -> sfn.Fail:
        """Carries the result of the work out of its branch, as an error that stops the heartbeat.

        If the text is too long, or if JSONata rounds its numbers (to 15 digits; a fencing token has
        16), the error has another name, and the guard fails rather than damage the result.
        """
        short = f"$length($text) <= {_LONGEST_CAUSE} and {_MOST_BYTES} <= {_LONGEST_CAUSE}"
        fits = f"{short} and $parse($text).result = $states.input"
        complete = f"$type($states.input) = 'null' or ({fits})"
        lock_name = self.variable.field("lock_name")
        refusal = (
            f"'the work is done; the lock ' & {lock_name} & "
            "' could not be released, nor the result be handed on'"
        )

        def either(value: str, otherwise: str) -> str:
            return jsonata(f"($text := {_RESULT_AS_TEXT}; {complete} ? {value} : {otherwise})")

        return self._fail(
            "Lock not released",
            error=either(f"'{self.not_released_error}'", "'LockNotReleased'"),
            cause=either("$text", refusal),
        )

    @property
    def not_released_error(self) -> str:
        """The name of an error that only this guard uses."""
        return f"LockNotReleased.{self.variable.name}"

    def rethrow(self, purpose: str = "Failed") -> sfn.Fail:
        """Fails with the error that came in, by its own name and cause."""
        return self._fail(
            purpose,
            error=_string_or("$states.input.Error", "'States.TaskFailed'"),
            cause=_string_or("$states.input.Cause", "''"),
        )

    def timed_out(self) -> sfn.Fail:
        """Fails with `LockWaitTimeout`, whose cause names the lock and its holders."""
        lock = self.variable.field
        max_wait_seconds = self.options.max_wait_seconds
        holders = f"{lock('holders')}[[0..{_SHOWN_HOLDERS - 1}]].owner_name"
        name = f"${self.first.name}_entered" if self.first else lock("lock_name")
        told = f"($exists({lock('holders')}) ? ', held by ' & $join({holders}, ', ') : '')"
        cause = (
            f"'lock ' & {name} & "
            f"' was not granted within max_wait of {max_wait_seconds} s (waited ' & "
            f"$string($floor(($millis() - {lock('waiting_since_ms')}) / 1000)) & ' s)' & "
            + (told if self.first is None else "'; none of the locks is held'")
            + f" & ($exists({lock('detail')}) ? '; ' & {lock('detail')} : '')"
        )
        return self._fail("Timed out", error=LockWaitTimeout.__name__, cause=jsonata(cause))

    def superseded(self) -> sfn.Fail:
        """Fails with `Superseded`, whose cause names the lock and both versions."""
        lock, version = self.variable.field, self.options.only_newest
        own = lock("only_newest") if is_jsonata(version) else version
        cause = (
            f"'lock ' & {lock('lock_name')} & ': version ' & {own} & ' is superseded, ' & "
            f"{lock('newest')} & ' was granted the lock'"
        )
        return self._fail("Newer granted", error=Superseded.__name__, cause=jsonata(cause))

    def _fail(self, purpose: str, *, error: str, cause: str) -> sfn.Fail:
        name = self.variable.state_name(purpose)
        return sfn.Fail.jsonata(self.scope, name, error=error, cause=cause)


def _string_or(expression: str, default: str) -> str:
    return jsonata(f"$type({expression}) = 'string' ? {expression} : {default}")


def releases(
    purpose: str, locks: Sequence[GuardStates], *, then: sfn.IChainable
) -> list[sfn.TaskStateBase]:
    """For each lock the state that frees it, and after it those that were taken before it."""
    made: list[sfn.TaskStateBase] = []
    for each in locks:
        after: sfn.IChainable = made[-1] if made else then
        release = each.release(purpose, then=after, may_wait=True)
        release.next(after)
        made.append(release)
    return made


_WORK: Final = "Work"


def work_then_release(
    task: sfn.IChainable, locks: Sequence[GuardStates], *, on_error: sfn.IChainable
) -> sfn.Chain:
    """The work as one state whose every error goes to `on_error`, as {Error, Cause}.

    The lock that was taken last is released first; a release that fails leaves out no other one.
    """
    states = locks[0]
    work = task if is_bare_task(task) else states.branches(_WORK, task)
    _catch_all(work, on_error)
    not_released = states.not_released()
    last = release = states.release("Release", then=not_released)
    for each in locks[1:]:
        before = release
        release = each.release("Release", then=before)
        release.next(before)
    work.next(release)
    return sfn.Chain.custom(work, [last, not_released], not_released)


def work_beside_heartbeat(
    task: sfn.IChainable,
    locks: Sequence[GuardStates],
    *,
    interval_seconds: int,
    on_error: sfn.IChainable,
) -> sfn.Chain:
    """The work with heartbeats beside it: a release ends its heartbeat, a loss ends the work.

    A task that is more than a bare one gets a branch of its own: a Succeed in it would end the
    branch before the release. A release that fails has to fail its branch, because only that stops
    its heartbeat; the locks that were taken before it are then released outside.
    """
    states = locks[0]
    not_ended = states.not_released_beside_a_heartbeat()
    release = states.release("Release", then=not_ended, keep_alive=True)
    for each in locks[1:]:
        before = release
        release = each.release("Release", then=not_ended, keep_alive=True)
        release.next(before)
    body = task if is_bare_task(task) else states.branches("Body", task)
    body.next(release)
    heartbeats = [
        each.heartbeat(
            interval_seconds=interval_seconds,
            # As its task token would have ended it.
            on_end=sfn.Pass.jsonata(each.scope, each.variable.state_name("Heartbeat ended")),
            on_loss=each.rethrow("Not kept alive"),
        )
        for each in locks
    ]
    work = states.branches(_WORK, body, *heartbeats)
    not_released = states.not_released()
    rest = releases("Release the rest", locks[:-1], then=not_released)
    work.add_catch(
        rest[-1] if rest else not_released,
        errors=[states.not_released_error],
        outputs=RESULT_IN_CAUSE,
    )
    _catch_all(work, on_error)
    return sfn.Chain.custom(work, [work, not_released], not_released)


def _catch_all(work: sfn.TaskStateBase | sfn.Parallel, on_error: sfn.IChainable) -> None:
    work.add_catch(on_error, errors=["States.DataLimitExceeded"])  # States.ALL does not match it
    work.add_catch(on_error, errors=[ANY_ERROR])


def is_bare_task(task: sfn.IChainable) -> TypeGuard[sfn.TaskStateBase]:
    """Whether the task is a state without transitions, so that the guard may add its own."""
    if not isinstance(task, sfn.TaskStateBase):
        return False
    rendered = task.to_state_json()
    return "Next" not in rendered and "Catch" not in rendered
