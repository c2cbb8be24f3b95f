"""The states that call the service: acquire, release and the heartbeat beside the work.

A guard believes only the answer to its own acquisition: every caller that knows a task token can
complete the task with anything, but only the service and this workflow know the owner id. An
acquisition that was released meanwhile begins again as another owner in the same wait, after pauses
that double.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.fragments import (
    ANY_ERROR,
    ERROR_OUTPUT,
    EVALUATION_ERROR,
    NOT_WORTH_REPEATING,
    TIMEOUT,
    UNCHANGED,
    WorkflowVariable,
    is_jsonata,
    jsonata,
    never_repeat,
    repeat,
    repeat_unknown,
)
from fairlock.cdk.service.service_base import ILockService
from fairlock.errors import KeepAliveEnded, LockLost, LockStoreUnavailable
from fairlock.protocol.outcomes import RefusalReason
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS

_PAUSES_SECONDS: Final = range(1, 11)
"""A Retry of Step Functions pauses for a second at least. In a pause no push reaches a waiter."""
_LARGEST_MISS_SECONDS: Final = 2
_SHORTEST_SECONDS: Final = 5
_LATEST: Final = 20
_MOST_AFTER_RESTART: Final = 1000
"""At eleven events a period: less than half of an execution's history of 25,000 events."""


@dataclass(frozen=True, slots=True)
class FallbackPeriods:
    """`number` periods of `seconds` each, with a pause between each two."""

    number: int
    seconds: int
    pause_seconds: int

    @property
    def total_seconds(self) -> int:
        """How long the periods and the pauses between them last."""
        return self.number * (self.seconds + self.pause_seconds) - self.pause_seconds


def divide_wait(max_wait_seconds: int, *, fallback_seconds: int) -> FallbackPeriods:
    """The longest equal periods, pauses included, that miss the wait by two seconds at most.

    The tests show that there always are such periods.
    """
    if max_wait_seconds <= fallback_seconds:
        return FallbackPeriods(1, max_wait_seconds, min(_PAUSES_SECONDS))

    candidates = (
        FallbackPeriods(round((max_wait_seconds + pause) / (seconds + pause)), seconds, pause)
        for seconds in range(fallback_seconds, fallback_seconds // 10, -1)
        for pause in _PAUSES_SECONDS
        if seconds + pause <= fallback_seconds
    )
    return next(
        candidate
        for candidate in candidates
        if abs(candidate.total_seconds - max_wait_seconds) <= _LARGEST_MISS_SECONDS
    )


def period_after_restart(max_wait_seconds: int, *, fallback_seconds: int) -> FallbackPeriods:
    """One period of an acquisition that has started again: a Retry cannot count the rest of a wait.

    The last one ends a twentieth of the wait too late at most, or five seconds.
    """
    seconds = max(
        _SHORTEST_SECONDS,
        min(fallback_seconds, max_wait_seconds // _LATEST),
        max_wait_seconds // _MOST_AFTER_RESTART,
    )
    return FallbackPeriods(1, min(seconds, LONGEST_FALLBACK_SECONDS), min(_PAUSES_SECONDS))


_ANOTHER: Final = "$error('the answer names another lock or another owner')"
ANSWER: Final = "$answer"
"""The answer, in what `if_own` is given."""


def if_own(variable: WorkflowVariable, answer: str, *, then: str, only_if: str = "true") -> str:
    """A value, if the answer is one to this very acquisition; else an evaluation error."""
    own = (
        f"{ANSWER}.lock_name = {variable.field('lock_name')}"
        f" and {ANSWER}.owner_id = {variable.field('owner_id')} and {only_if}"
    )
    return jsonata(f"({ANSWER} := {answer}; {own} ? {then} : {_ANOTHER})")


def catch_unknown(
    acquire: sfn.TaskStateBase, variable: WorkflowVariable, on_error: sfn.IChainable
) -> None:
    """Goes to `on_error` when repeats did not help: the outcome of an acquire is unknown."""
    lock_name = variable.field("lock_name")
    unknown = {
        "Error": LockStoreUnavailable.__name__,
        "Cause": jsonata(f"'lock ' & {lock_name} & ': the answers were to another acquisition'"),
    }
    acquire.add_catch(on_error, errors=[EVALUATION_ERROR], outputs=unknown)
    acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=ERROR_OUTPUT)


def pause_before_restart(variable: WorkflowVariable) -> str:
    """JSONata: 1, 2, 4 … seconds."""
    return f"$power(2, {variable.field('restarts')})"


def restarted(variable: WorkflowVariable) -> str:
    """JSONata: the guard's variable for the next owner."""
    restarts, pause = f"{variable.field('restarts')} + 1", pause_before_restart(variable)
    return variable.merged(f"'owner_id': $uuid(), 'restarts': {restarts}, 'pause_seconds': {pause}")


_EXECUTION: Final = jsonata("$states.context.Execution.Id")
_RUN: Final = "$states.context.Execution.RedriveCount"
_REDRIVES: Final = jsonata(f"$exists({_RUN}) ? {_RUN} : null")
_TASK_TOKEN: Final = jsonata("$states.context.Task.Token")
_REQUEST_SECONDS: Final = 30
"""The function's own 20 s, and a cold start."""
_WAIT_FOR_TASK_TOKEN: Final = sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN
_SHORTEST_PAUSE_SECONDS: Final = 2
_HEARTBEAT_ENDED: Final = {"ended": True}
"""Short: it counts toward the largest output beside that of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireOptions:
    """What a guard asks for, and how long it waits for that."""

    lease_seconds: int
    limit: int | str
    max_wait_seconds: int
    shared: bool
    only_newest: int | str | None = None

    @property
    def evaluated(self) -> dict[str, int | str | None]:
        """What is JSONata, by its field: *Enter* evaluates it."""
        given = {"limit": self.limit, "only_newest": self.only_newest}
        return {field: value for field, value in given.items() if is_jsonata(value)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCalls:
    """Makes the states of one guard that call the service."""

    scope: Construct
    service: ILockService
    variable: WorkflowVariable
    options: AcquireOptions
    express: bool

    def acquire(self, *, on_error: sfn.IChainable) -> tasks.LambdaInvoke:
        """Asks for the lock once and stores the answer in the variable.

        An error, or the answer to another acquisition, means "outcome unknown": the call is
        repeated with the same owner id, and at last `on_error` must release what may be granted.
        """
        acquire = self._invoke(
            "Acquire",
            self.service.acquire_function,
            payload=self._waiting_request(),
            assign=self._answer_in_variable("$states.result.Payload"),
        )
        repeat_unknown(acquire, express=self.express)
        catch_unknown(acquire, self.variable, on_error)
        return acquire

    def acquire_in_queue(
        self,
        purpose: str,
        periods: FallbackPeriods,
        *,
        on_restart: sfn.IChainable,
        on_timeout: sfn.IChainable,
        on_error: sfn.IChainable,
    ) -> tasks.LambdaInvoke:
        """Asks for the lock and sleeps on a task token until it is granted.

        Once a period it asks again, with the same place in the queue: that finds a grant whose push
        was lost, and evicts a holder that died.
        """
        acquire = self._invoke(
            purpose,
            self.service.acquire_function,
            payload={**self._waiting_request(), "fallback_seconds": periods.seconds},
            # Every caller that has the task token can complete it, with anything.
            assign=self._answer_in_variable("$states.result", only_if=self._is_final),
            sleep_seconds=periods.seconds,
        )
        acquire.add_retry(
            errors=[TIMEOUT],
            max_attempts=periods.number - 1,
            interval=Duration.seconds(periods.pause_seconds),
            backoff_rate=1,
        )
        repeat_unknown(acquire, express=self.express)
        restart = {self.variable.name: jsonata(restarted(self.variable))}
        next_period = {self.variable.name: jsonata(self.variable.merged("'pause_seconds': 1"))}
        acquire.add_catch(on_restart, errors=[LockLost.__name__], outputs=UNCHANGED, assign=restart)
        acquire.add_catch(on_timeout, errors=[TIMEOUT], outputs=UNCHANGED, assign=next_period)
        catch_unknown(acquire, self.variable, on_error)
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

        `may_wait`: the acquisition may still be in the queue, and is to leave it; `keep_alive`: a
        heartbeat runs beside the work, and is to be ended.
        """
        queue = {"queue": True} if may_wait else {}
        heartbeat = {"keep_alive": True} if keep_alive else {}
        payload = {**self._acquisition(), **queue, **heartbeat}
        release = self._invoke(purpose, self.service.release_function, payload=payload)
        repeat_unknown(release, express=self.express)
        release.add_catch(then, errors=[ANY_ERROR], outputs=UNCHANGED)
        return release

    def heartbeat(
        self, *, interval_seconds: int, on_end: sfn.IChainable, on_loss: sfn.IChainable
    ) -> tasks.LambdaInvoke:
        """Renews the lease, and sleeps on a task token for one interval; then again, for ever.

        Release completes the token with its own answer, or the next heartbeat goes to `on_end`. A
        call whose outcome is unknown is repeated, and then the state begins again: an outage of the
        service ends no work. A lock that is lost, or a request that can never succeed, goes to
        `on_loss`.
        """
        heartbeat = self._invoke(
            "Heartbeat",
            self.service.heartbeat_function,
            payload=self._request(),
            outputs=if_own(self.variable, "$states.result", then=json.dumps(_HEARTBEAT_ENDED)),
            sleep_seconds=interval_seconds,
        )
        ended = KeepAliveEnded.__name__
        never_repeat(heartbeat, [TIMEOUT, ended, *NOT_WORTH_REPEATING])
        pause = max(interval_seconds, _SHORTEST_PAUSE_SECONDS)
        repeat(heartbeat, ANY_ERROR, longest_pause_seconds=pause)
        heartbeat.add_catch(on_end, errors=[ended], outputs=_HEARTBEAT_ENDED)
        heartbeat.add_catch(on_loss, errors=list(NOT_WORTH_REPEATING), outputs=ERROR_OUTPUT)
        heartbeat.add_catch(heartbeat, errors=[ANY_ERROR], outputs=UNCHANGED)
        return heartbeat

    def _invoke(
        self,
        purpose: str,
        function: lambda_.IFunction,
        *,
        payload: Mapping[str, object],
        assign: Mapping[str, str] | None = None,
        outputs: str = UNCHANGED,
        sleep_seconds: int | None = None,
    ) -> tasks.LambdaInvoke:
        """A call without any repeats, which hands on its input unless `outputs` says otherwise."""
        sleeps = sleep_seconds is not None
        task_token = {"task_token": _TASK_TOKEN} if sleeps else {}
        return tasks.LambdaInvoke.jsonata(
            self.scope,
            self.variable.state_name(purpose),
            lambda_function=function,
            payload=sfn.TaskInput.from_object({**payload, **task_token}),
            outputs=outputs,
            assign=assign,
            task_timeout=sfn.Timeout.duration(Duration.seconds(sleep_seconds or _REQUEST_SECONDS)),
            integration_pattern=_WAIT_FOR_TASK_TOKEN if sleeps else None,
            retry_on_service_exceptions=False,
        )

    def _waiting_request(self) -> dict[str, object]:
        """Says since when it waits: the advice when to poll again grows with the wait."""
        return {**self._request(), "waiting_since_ms": self.variable.jsonata("waiting_since_ms")}

    def _request(self) -> dict[str, object]:
        options = self.options
        evaluated = {field: self.variable.jsonata(field) for field in options.evaluated}
        return {
            **self._acquisition(),
            **({} if self.express else {"redrive_count": _REDRIVES}),
            "owner_name": _EXECUTION,
            "lease_seconds": options.lease_seconds,
            "limit": options.limit,
            **({"shared": True} if options.shared else {}),
            **({} if options.only_newest is None else {"only_newest": options.only_newest}),
            **evaluated,
        }

    @property
    def _is_final(self) -> str:
        acquired = f"{ANSWER}.acquired = true"
        if self.options.only_newest is None:
            return acquired
        return f"({acquired} or {ANSWER}.reason = '{RefusalReason.SUPERSEDED}')"

    def _answer_in_variable(self, answer: str, *, only_if: str = "true") -> dict[str, str]:
        kept = ("waiting_since_ms", "restarts", *self.options.evaluated)
        fields = ", ".join(f"'{name}': {self.variable.field(name)}" for name in kept)
        then = f"$merge([{ANSWER}, {{{fields}}}])"
        return {self.variable.name: if_own(self.variable, answer, then=then, only_if=only_if)}

    def _acquisition(self) -> dict[str, str]:
        """Names no Express execution: Step Functions neither describes it nor reports its end."""
        execution = {} if self.express else {"execution_arn": _EXECUTION}
        names = ("lock_name", "owner_id")
        return {**{name: self.variable.jsonata(name) for name in names}, **execution}
