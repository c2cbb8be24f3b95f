"""`Pace`: a workflow waits for the next slot of a pace, and goes on when it begins.

Enter ─▶ Reserve ─▶ Reserved? ─ yes ─▶ Wait ─▶ what follows
└────── no ──▶ `on_too_late`, or fails with `SlotTooLate`
"""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.fragments import (
    UNCHANGED,
    Fragment,
    WorkflowVariable,
    check_place,
    check_states,
    jsonata,
    repeat_unknown,
    require,
    whole_seconds,
)
from fairlock.cdk.guard.guard_arguments import checked, require_near, workflow_lock_name
from fairlock.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS
from fairlock.cdk.service.service_base import AnyLockService, LockServiceBase
from fairlock.errors import InvalidRequest, SlotTooLate, explained
from fairlock.wire.rules import (
    BURST,
    DEFAULT_MAX_WAIT_SECONDS,
    MOST_A_SECOND,
    PACE_RATE,
    PACE_WAIT_SECONDS,
)

_REQUEST_SECONDS: Final = FUNCTION_TIMEOUT_SECONDS + 10
"""The function's own, and a cold start."""


class Pace(Fragment):
    """Waits for the next slot of a pace: ten a minute, or one an hour, wherever callers run.

        Pace(self, "Vendor", service=locks, pace_name="vendor", rate=(10, Duration.minutes(1)))

    Guarantees:
        * Callers of one name reserve slots in order, `period / count` apart, and none begins
          before its slot.
        * Every entrance reserves a slot of its own: each iteration of a Map, each retry of what is
          around it.
        * What enters the state leaves it unchanged (integers beyond 2^53 excepted, as in every
          JSONata state).

    Not guaranteed:
        * That work does not overlap: put a `LockGuard` around or behind it for five at once *and*
          ten a minute.
        * That the slot is used: an execution that ends while it waits wastes its slot.
        * The moment within a second: Step Functions waits for whole seconds, rounded up.

    Four state transitions, and one call of the function, which takes one write or two. Works in
    Standard and Express workflows, with JSONPath and JSONata. In an Express workflow give a
    `max_wait` well under five minutes, after which Step Functions ends it.
    """

    @explained
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: AnyLockService,
        pace_name: str,
        rate: tuple[int, Duration],
        burst: int = 1,
        max_wait: Duration | None = None,
        on_too_late: sfn.IChainable | None = None,
    ) -> None:
        """Declares the states.

        Args:
            scope: the parent construct.
            construct_id: prefixes the names of the states.
            service: the lock service, made with `pace=True`, this stack's own or an imported one.
            pace_name: a literal, JSONata over the input (`{% … %}`), or a JsonPath token.
            rate: how many, in how much time: `(10, Duration.minutes(1))`. At most 500 a second; 31
                days at most.
            burst: how many may begin at once after a pause, at most 1,000.
            max_wait: the longest wait for the slot, default 30 minutes, at most 7 days.
            on_too_late: where to go, with the input, when the next slot is later than that. Nothing
                was reserved then. Default: fail with `SlotTooLate`.
        """
        check_place(scope, construct_id)
        rule = "must be a LockService of this app, or one of LockService.from_stack(…)"
        require("service", isinstance(service, LockServiceBase), rule, service)
        function = service.pace_function
        Stack.of(scope)  # It refuses a scope that is in no stack.
        require_near(function, scope)
        name = workflow_lock_name(scope, pace_name, field="pace_name")
        count, period_seconds = _checked_rate(rate)
        checked("burst", BURST, burst)
        max_wait_seconds = DEFAULT_MAX_WAIT_SECONDS
        if max_wait is not None:
            seconds = whole_seconds("max_wait", max_wait)
            max_wait_seconds = checked("max_wait", PACE_WAIT_SECONDS, seconds)
        if on_too_late is not None:
            check_states("on_too_late", on_too_late)

        super().__init__(scope, construct_id)
        variable = WorkflowVariable.of(scope, construct_id, prefix="pace")
        # The id is made before the call, so that each repeat of the call has the same.
        reservation = {"pace_name": name, "reservation_id": jsonata("$uuid()")}
        self._first = enter = sfn.Pass.jsonata(
            self, variable.state_name("Enter"), assign={variable.name: reservation}
        )
        reserve = tasks.LambdaInvoke.jsonata(
            self,
            variable.state_name("Reserve"),
            lambda_function=function,
            payload=sfn.TaskInput.from_object(
                {
                    **{field: variable.jsonata(field) for field in reservation},
                    "rate": [count, period_seconds],
                    "burst": burst,
                    "max_wait_seconds": max_wait_seconds,
                }
            ),
            outputs=UNCHANGED,
            assign={variable.name: jsonata("$states.result.Payload")},
            task_timeout=sfn.Timeout.duration(Duration.seconds(_REQUEST_SECONDS)),
            retry_on_service_exceptions=False,
        )
        repeat_unknown(reserve, express=False)
        wait = sfn.Wait.jsonata(
            self,
            variable.state_name("Wait"),
            time=sfn.WaitTime.seconds(variable.jsonata("wait_seconds")),
        )
        is_reserved = sfn.Choice.jsonata(self, variable.state_name("Reserved?"))
        is_reserved.when(sfn.Condition.jsonata(variable.jsonata("reserved")), wait)
        is_reserved.otherwise(on_too_late or self._too_late(variable, max_wait_seconds))
        enter.next(reserve).next(is_reserved)
        self._last = [wait]

    def _too_late(self, variable: WorkflowVariable, max_wait_seconds: int) -> sfn.Fail:
        cause = (
            f"'pace ' & {variable.field('pace_name')} & ': the next slot begins in ' & "
            f"$string({variable.field('retry_after_seconds')}) & "
            f"' s, and max_wait is {max_wait_seconds} s; nothing was reserved'"
        )
        return sfn.Fail.jsonata(
            self, variable.state_name("Too late"), error=SlotTooLate.__name__, cause=jsonata(cause)
        )


def _checked_rate(rate: object) -> tuple[int, int]:
    shown = rate
    if isinstance(rate, tuple) and len(rate) == len(("count", "period")):
        count, period = rate
        shown = f"({count!r}, {period!r})"
        if isinstance(period, Duration):
            seconds = whole_seconds("rate", period)
            if PACE_RATE.allows((count, seconds)):
                return int(count), seconds
            shown = f"({count!r}, {period.to_human_string()})"
    rule = (
        "must be a pair such as (10, Duration.minutes(1)): how many, a whole number of at least 1, "
        f"and in how much time, at most 31 days; at most {MOST_A_SECOND} a second"
    )
    raise InvalidRequest(field="rate", rule=rule, value=shown)
