"""The guard's own states. All are JSONata states, legal in JSONPath and in JSONata machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from leasehold.cdk._periods import Periods
from leasehold.cdk._variable import GuardVariable, jsonata
from leasehold.cdk.service import ILockService
from leasehold.errors import InvalidRequest, LockLost, LockWaitTimeout

UNCHANGED: Final = jsonata("$states.input")
ANY_ERROR: Final = "States.ALL"

_REQUEST_TIMEOUT: Final = Duration.seconds(30)
"""The function's own 20 s, and a cold start."""
_REPEATS: Final = 8
_REPEATS_IN_EXPRESS: Final = 3
"""An Express workflow ends after 5 minutes, and with it the result of the work."""
_REPEATS_WHEN_THROTTLED: Final = 100

_NOT_WORTH_REPEATING: Final = (
    InvalidRequest.__name__,
    LockLost.__name__,
    "States.QueryEvaluationError",
)
_TIMEOUT: Final = "States.Timeout"
_ERROR_OUTPUT: Final = jsonata("$states.errorOutput")
_SHOWN_HOLDERS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireTerms:
    """What a guard asks for."""

    lease_seconds: int
    limit: int | str
    max_wait_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStates:
    """Makes the states of one guard, which share its variable and the prefix of their names."""

    scope: Construct
    service: ILockService
    variable: GuardVariable
    express: bool

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

    def acquire(self, terms: AcquireTerms, *, on_error: sfn.IChainable) -> tasks.LambdaInvoke:
        """Asks for the lock and keeps the answer in the variable.

        An error means "outcome unknown": the call is repeated with the same owner id, and when that
        does not help either, `on_error` must release what may have been granted.
        """
        acquire = self._invoke(
            "Acquire",
            self.service.acquire_function,
            payload=self._request(terms),
            assign=self._keep("$states.result.Payload"),
        )
        self._repeat_unknown(acquire)
        acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=_ERROR_OUTPUT)
        return acquire

    def acquire_by_push(
        self,
        terms: AcquireTerms,
        periods: Periods,
        *,
        again: sfn.IChainable,
        on_timeout: sfn.IChainable,
        on_error: sfn.IChainable,
    ) -> tasks.LambdaInvoke:
        """Asks for the lock and sleeps on a task token until it is granted.

        Once a period it asks again, with the same owner id and place in the queue: that finds a
        grant whose push was lost, and puts out a holder that died.
        """
        acquire = self._invoke(
            "Acquire",
            self.service.acquire_function,
            payload={
                **self._request(terms),
                "task_token": jsonata("$states.context.Task.Token"),
            },
            assign=self._keep("$states.result"),
            integration_pattern=sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN,
            timeout=Duration.seconds(periods.seconds),
        )
        acquire.add_retry(
            errors=[_TIMEOUT],
            max_attempts=periods.number - 1,
            interval=Duration.seconds(periods.pause_seconds),
            backoff_rate=1,
        )
        self._repeat_unknown(acquire)
        acquire.add_catch(again, errors=[LockLost.__name__], outputs=UNCHANGED)
        acquire.add_catch(on_timeout, errors=[_TIMEOUT], outputs=UNCHANGED)
        acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=_ERROR_OUTPUT)
        return acquire

    def release(
        self, purpose: str, *, then: sfn.IChainable, may_wait: bool = False
    ) -> tasks.LambdaInvoke:
        """Frees the lock and hands on its input, also when the lock could not be freed.

        `may_wait` says that the acquisition may still be in the queue, and is to leave it.
        """
        place = {"entered_at_ms": self.variable.jsonata("entered_at_ms")} if may_wait else {}
        payload = {**self._owner(), **place}
        release = self._invoke(purpose, self.service.release_function, payload=payload)
        self._repeat_unknown(release)
        release.add_catch(then, errors=[ANY_ERROR], outputs=UNCHANGED)
        return release

    def not_released(self) -> sfn.Pass:
        """Where the workflow goes on if a release failed for good: the lease will end the lock."""
        return sfn.Pass.jsonata(
            self.scope,
            "NotReleased",
            state_name=self.variable.state_name("Not released"),
            comment="Best effort: the result of the work stands, and the lease ends the lock.",
        )

    def wrap(self, work: sfn.IChainable) -> sfn.Parallel:
        """Puts a chain into a branch of its own, which it cannot leave past the release."""
        wrapped = sfn.Parallel.jsonata(
            self.scope,
            "Work",
            state_name=self.variable.state_name("Work"),
            outputs=jsonata("$states.result[0]"),
        )
        wrapped.branch(work)
        return wrapped

    def rethrow(self) -> sfn.Fail:
        """Fails with the error that came in, by its own name and cause."""
        return sfn.Fail.jsonata(
            self.scope,
            "Failed",
            state_name=self.variable.state_name("Failed"),
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

    def _repeat_unknown(self, invoke: tasks.LambdaInvoke) -> None:
        """Repeats what failed with an unknown outcome, which every call of the service may be."""
        invoke.add_retry(errors=list(_NOT_WORTH_REPEATING), max_attempts=0)
        if not self.express:
            _repeat(invoke, "Lambda.TooManyRequestsException", _REPEATS_WHEN_THROTTLED)
        _repeat(invoke, ANY_ERROR, _REPEATS_IN_EXPRESS if self.express else _REPEATS)

    def _request(self, terms: AcquireTerms) -> dict[str, object]:
        execution = jsonata("$states.context.Execution.Id")
        return {
            **self._owner(),
            "owner_name": execution,
            **({} if self.express else {"execution_arn": execution}),
            "entered_at_ms": self.variable.jsonata("entered_at_ms"),
            "lease_seconds": terms.lease_seconds,
            "limit": terms.limit,
        }

    def _keep(self, answer: str) -> dict[str, str]:
        """Keeps an answer in the variable, with the time of entry, which it does not have."""
        entered = f"{{'entered_at_ms': {self.variable.field('entered_at_ms')}}}"
        return {self.variable.name: jsonata(f"$merge([{answer}, {entered}])")}

    def _owner(self) -> Mapping[str, str]:
        return {name: self.variable.jsonata(name) for name in ("lock_name", "owner_id")}

    def _invoke(
        self,
        purpose: str,
        function: lambda_.IFunction,
        *,
        payload: Mapping[str, object],
        assign: Mapping[str, Any] | None = None,
        integration_pattern: sfn.IntegrationPattern | None = None,
        timeout: Duration = _REQUEST_TIMEOUT,
    ) -> tasks.LambdaInvoke:
        return tasks.LambdaInvoke.jsonata(
            self.scope,
            purpose.title().replace(" ", ""),
            state_name=self.variable.state_name(purpose),
            lambda_function=function,
            payload=sfn.TaskInput.from_object(payload),
            outputs=UNCHANGED,
            assign=assign,
            task_timeout=sfn.Timeout.duration(timeout),
            integration_pattern=integration_pattern,
            retry_on_service_exceptions=False,
        )


def _repeat(invoke: tasks.LambdaInvoke, error: str, max_attempts: int) -> None:
    invoke.add_retry(
        errors=[error],
        interval=Duration.seconds(1),
        backoff_rate=2,
        max_delay=Duration.seconds(20),
        max_attempts=max_attempts,
        jitter_strategy=sfn.JitterType.FULL,
    )


def _string_or(expression: str, default: str) -> str:
    return jsonata(f"$type({expression}) = 'string' ? {expression} : {default}")
