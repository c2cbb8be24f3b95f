"""The guard's own states. All are JSONata states, legal in JSONPath and in JSONata machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_stepfunctions as sfn

from leasehold.cdk.guard.service_calls import AcquireTerms, ServiceCalls
from leasehold.cdk.workflow_variable import jsonata
from leasehold.errors import LockWaitTimeout

_SHOWN_HOLDERS: Final = 5
_LONGEST_CAUSE: Final = 32_768
"""Step Functions cuts off what is longer. Whether it counts characters or bytes, it does not say:
this many bytes are right either way."""
_MOST_BYTES: Final = "$length($replace($text, /[^ -~]/, 'four'))"
"""Not less than `$text` has in UTF-8, where a character that is not ASCII has four at most."""
_RESULT_AS_TEXT: Final = "$string({'result': $states.input})"
RESULT_IN_CAUSE: Final = jsonata("$parse($states.errorOutput.Cause).result")
"""What a Catch makes of the error that `not_released_beside_a_heartbeat` raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStates(ServiceCalls):
    """Makes the states of one guard, which share its variable and the prefix of their names."""

    def enter(self, lock_name: str) -> sfn.Pass:
        """Makes the owner id and the time of entry, once: what follows repeats with the same."""
        lock = {
            "lock_name": lock_name,
            "owner_id": jsonata("$uuid()"),
            "entered_at_ms": jsonata("$millis()"),
        }
        return sfn.Pass.jsonata(
            self.scope,
            "Enter",
            state_name=self.variable.state_name("Enter"),
            assign={self.variable.name: lock},
        )

    def branches(self, purpose: str, *branches: sfn.IChainable) -> sfn.Parallel:
        """Runs chains as branches, which they cannot leave. The first one's result is kept."""
        parallel = sfn.Parallel.jsonata(
            self.scope,
            purpose,
            state_name=self.variable.state_name(purpose),
            outputs=jsonata("$states.result[0]"),
        )
        return parallel.branch(*branches)

    def not_released(self) -> sfn.Pass:
        """Where the workflow goes on if a release failed for good: the lease will end the lock."""
        return sfn.Pass.jsonata(
            self.scope,
            "NotReleased",
            state_name=self.variable.state_name("Not released"),
            comment="Best effort: the result of the work stands; the lock ends with the execution.",
        )

    def heartbeat_ended(self) -> sfn.Pass:
        """Ends the branch of the heartbeat as its task token would have done."""
        return sfn.Pass.jsonata(
            self.scope, "HeartbeatEnded", state_name=self.variable.state_name("Heartbeat ended")
        )

    def not_released_beside_a_heartbeat(self) -> sfn.Fail:
        """Carries the result of the work out of its branch, as an error that stops the heartbeat.

        An error by another name, and not a damaged result, if the text is too long, or if JSONata
        rounds its numbers (to 15 digits; a fencing token has 16).
        """
        short = f"$length($text) <= {_LONGEST_CAUSE} and {_MOST_BYTES} <= {_LONGEST_CAUSE}"
        fits = f"{short} and $parse($text).result = $states.input"
        kept = f"$type($states.input) = 'null' or ({fits})"
        refusal = "'the work is done; the lock could not be released, nor the result be kept'"

        def either(value: str, otherwise: str) -> str:
            return jsonata(f"($text := {_RESULT_AS_TEXT}; {kept} ? {value} : {otherwise})")

        return sfn.Fail.jsonata(
            self.scope,
            "LockNotReleased",
            state_name=self.variable.state_name("Lock not released"),
            error=either(f"'{self.not_released_error}'", "'LockNotReleased'"),
            cause=either("$text", refusal),
        )

    @property
    def not_released_error(self) -> str:
        """An error's name that only this guard uses."""
        return f"LockNotReleased.{self.variable.name}"

    def rethrow(self, purpose: str = "Failed") -> sfn.Fail:
        """Fails with the error that came in, by its own name and cause."""
        return sfn.Fail.jsonata(
            self.scope,
            purpose.title().replace(" ", ""),
            state_name=self.variable.state_name(purpose),
            error=_string_or("$states.input.Error", "'States.TaskFailed'"),
            cause=_string_or("$states.input.Cause", "''"),
        )

    def timed_out(self, terms: AcquireTerms) -> sfn.Fail:
        """Fails with LockWaitTimeout and tells who holds the lock."""
        lock = self.variable.field
        holders = f"{lock('holders')}[[0..{_SHOWN_HOLDERS - 1}]].owner_name"
        cause = (
            f"'lock ' & {lock('lock_name')} & "
            f"' was not granted within max_wait of {terms.max_wait_seconds} s (waited ' & "
            f"$string($floor(($millis() - {lock('entered_at_ms')}) / 1000)) & ' s)' & "
            f"($exists({lock('holders')}) ? ', held by ' & $join({holders}, ', ') : '')"
        )
        return sfn.Fail.jsonata(
            self.scope,
            "TimedOut",
            state_name=self.variable.state_name("Timed out"),
            error=LockWaitTimeout.__name__,
            cause=jsonata(cause),
        )


def _string_or(expression: str, default: str) -> str:
    return jsonata(f"$type({expression}) = 'string' ? {expression} : {default}")
