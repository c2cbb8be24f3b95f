"""The guard's calls of the service: acquire, release and the heartbeat beside the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from leasehold.cdk.guard.fallback_periods import Periods
from leasehold.cdk.guard.invocations import (
    ANY_ERROR,
    ERROR_OUTPUT,
    NOT_WORTH_REPEATING,
    TASK_TOKEN,
    TIMEOUT,
    UNCHANGED,
    invoke,
    never_repeat,
    repeat,
    repeat_unknown,
)
from leasehold.cdk.service.lock_service import ILockService
from leasehold.cdk.workflow_variable import GuardVariable, jsonata
from leasehold.errors import KeepAliveEnded, LockLost

_EXECUTION: Final = jsonata("$states.context.Execution.Id")
_SHORTEST_PAUSE_SECONDS: Final = 2
_BEATS_ENDED: Final = "ended"
"""Short: it counts toward the largest output beside that of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireTerms:
    """What a guard asks for."""

    lease_seconds: int
    limit: int | str
    max_wait_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCalls:
    """Makes the states of one guard that call the service."""

    scope: Construct
    service: ILockService
    variable: GuardVariable
    express: bool

    def acquire(self, terms: AcquireTerms, *, on_error: sfn.IChainable) -> tasks.LambdaInvoke:
        """Asks for the lock and keeps the answer in the variable.

        An error means "outcome unknown": the call is repeated with the same owner id, and when that
        does not help either, `on_error` must release what may have been granted.
        """
        acquire = invoke(
            self.scope,
            self.variable,
            "Acquire",
            self.service.acquire_function,
            payload=self._request(terms),
            assign=self._keep("$states.result.Payload"),
        )
        repeat_unknown(acquire, express=self.express)
        acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=ERROR_OUTPUT)
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
        acquire = invoke(
            self.scope,
            self.variable,
            "Acquire",
            self.service.acquire_function,
            payload={**self._request(terms), "task_token": TASK_TOKEN},
            assign=self._keep("$states.result"),
            integration_pattern=sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN,
            timeout=Duration.seconds(periods.seconds),
        )
        acquire.add_retry(
            errors=[TIMEOUT],
            max_attempts=periods.number - 1,
            interval=Duration.seconds(periods.pause_seconds),
            backoff_rate=1,
        )
        repeat_unknown(acquire, express=self.express)
        acquire.add_catch(again, errors=[LockLost.__name__], outputs=UNCHANGED)
        acquire.add_catch(on_timeout, errors=[TIMEOUT], outputs=UNCHANGED)
        acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=ERROR_OUTPUT)
        return acquire

    def release(
        self,
        purpose: str,
        *,
        then: sfn.IChainable,
        may_wait: bool = False,
        keep_alive: bool = False,
    ) -> tasks.LambdaInvoke:
        """Frees the lock and hands on its input, also when the lock could not be freed.

        `may_wait` says that the acquisition may still be in the queue, and is to leave it;
        `keep_alive` that a heartbeat runs beside, and is to be ended.
        """
        place = {"entered_at_ms": self.variable.jsonata("entered_at_ms")} if may_wait else {}
        beats = {"keep_alive": True} if keep_alive else {}
        payload = {**self._owner(), **self._execution(), **place, **beats}
        function = self.service.release_function
        release = invoke(self.scope, self.variable, purpose, function, payload=payload)
        repeat_unknown(release, express=self.express)
        release.add_catch(then, errors=[ANY_ERROR], outputs=UNCHANGED)
        return release

    def heartbeat(
        self,
        terms: AcquireTerms,
        *,
        interval_seconds: int,
        on_end: sfn.IChainable,
        on_loss: sfn.IChainable,
    ) -> tasks.LambdaInvoke:
        """Renews the lease, and sleeps on a task token for one interval; then again, for ever.

        Release completes the token; where Step Functions refuses that, the next beat goes to
        `on_end`. What failed with an unknown outcome is repeated, and when that does not help the
        state begins anew: an outage of the service ends no work. What ends it goes to `on_loss`: a
        lock that is lost, or a request that can never succeed.
        """
        beat = invoke(
            self.scope,
            self.variable,
            "Heartbeat",
            self.service.heartbeat_function,
            payload={**self._request(terms), "task_token": TASK_TOKEN},
            outputs=_BEATS_ENDED,
            integration_pattern=sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN,
            timeout=Duration.seconds(interval_seconds),
        )
        ended = KeepAliveEnded.__name__
        never_repeat(beat, [TIMEOUT, ended, *NOT_WORTH_REPEATING])
        pause = max(interval_seconds, _SHORTEST_PAUSE_SECONDS)
        repeat(beat, ANY_ERROR, longest_pause_seconds=pause)
        beat.add_catch(on_end, errors=[ended], outputs=_BEATS_ENDED)
        beat.add_catch(on_loss, errors=list(NOT_WORTH_REPEATING), outputs=ERROR_OUTPUT)
        beat.add_catch(beat, errors=[ANY_ERROR], outputs=UNCHANGED)
        return beat

    def _request(self, terms: AcquireTerms) -> dict[str, object]:
        return {
            **self._owner(),
            "owner_name": _EXECUTION,
            **self._execution(),
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

    def _execution(self) -> Mapping[str, str]:
        """Nobody can ask about the execution of an Express workflow, or is told of its end."""
        return {} if self.express else {"execution_arn": _EXECUTION}
