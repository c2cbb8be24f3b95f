"""The workflows of the smoke test, in one stack: all that AWS surely accepts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from infra.durable_package import package
from tests.e2e.durable.executions import WORKER
from tests.e2e.guard.stack import JSONATA, PER_EXECUTION, Spoilt
from tests.e2e.workflow_parts import (
    INPUT,
    LOCK,
    durable_function,
    invoke,
    invoke_by_path,
    stay,
)
from tests.smoke.separate_stacks import queue_of, short_logs

SHORT_FALLBACK_SECONDS: Final = 10
WAITS_SECONDS: Final = 25
POLLS_SECONDS: Final = 3
ENDS_SECONDS: Final = 5
DURABLE_SECONDS: Final = 120
KEPT_ALIVE_LEASES: Final = 3
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"


class SmokeWorkflows(Stack):
    """One state machine for each purpose; the output `<purpose>Arn` names it."""

    def __init__(
        self, scope: Construct, construct_id: str, *, locks: LockService, interval_seconds: int
    ) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = self._function("Worker", "worker.handler")
        self.refuses = self._function("Refuses", "worker.refuse")
        self._errors(Duration.seconds(interval_seconds))
        self._kept_alive(Duration.seconds(interval_seconds))
        self._ways_to_wait()
        self._status_events()
        self._durable()
        for name, body, language in (
            ("FormsPath", partial(forms, by_path=True), None),
            ("FormsJsonata", partial(forms, by_path=False), JSONATA),
            ("Integers", integers, None),
            ("GuardInMap", partial(guard_in_map, distributed=False), JSONATA),
            ("GuardInDistributedMap", partial(guard_in_map, distributed=True), None),
        ):
            scope = Construct(self, name)
            self._machine(scope, body(scope, locks, self.worker), query_language=language)

    def _function(self, construct_id: str, handler: str) -> lambda_.Function:
        return lambda_.Function(
            self,
            construct_id,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=lambda_.Code.from_asset(str(Path(__file__).parent / "worker")),
            handler=handler,
            log_group=short_logs(self, f"{construct_id}Logs"),
            timeout=Duration.minutes(1),
        )

    def _machine(self, scope: Construct, body: sfn.IChainable, **props: Any) -> sfn.StateMachine:  # noqa: ANN401 - a machine's
        machine = sfn.StateMachine(
            scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(body), **props
        )
        CfnOutput(self, f"{scope.node.id}Arn", value=machine.state_machine_arn)
        return machine

    def _guarded(self, name: str, *, works: bool = False, **props: Any) -> None:  # noqa: ANN401 - a guard's
        """A machine of one guard, around a wait of so many `seconds` or around the function."""
        scope = Construct(self, name)
        express = props.get("express", False)
        guard = LockGuard(
            scope,
            "Guard",
            task=invoke(scope, "Work", self.worker) if works else stay(scope),
            **{"service": self.locks, "lock_name": LOCK, "limit": LIMIT, **props},
        )
        kind = sfn.StateMachineType.EXPRESS if express else None
        self._machine(scope, guard, query_language=JSONATA, state_machine_type=kind)

    def _errors(self, interval: Duration) -> None:
        fails = Construct(self, "Fails")
        child = self._machine(fails, sfn.Fail(fails, "Fail", error="Child", cause="on purpose"))
        scope = Construct(self, "Errors")
        body = errors(scope, self.locks, self.worker, child=child, interval=interval)
        self._machine(scope, body, query_language=JSONATA)

    def _kept_alive(self, interval: Duration) -> None:
        terms: Mapping[str, Any] = {
            "keep_alive": interval,
            "lease": Duration.seconds(KEPT_ALIVE_LEASES * interval.to_seconds()),
        }
        self._guarded("KeptAlive", **terms)
        not_released = Spoilt(
            acquire_function=self.locks.acquire_function,
            heartbeat_function=self.locks.heartbeat_function,
            release_function=self.refuses,
        )
        self._guarded("NotReleased", works=True, service=not_released, **terms)

    def _ways_to_wait(self) -> None:
        self._guarded("Holds")  # in the queue, with the fallback period of 5 minutes
        short = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))
        self._guarded("Waits", waiting=short, max_wait=Duration.seconds(WAITS_SECONDS))
        self._guarded("Express", express=True, max_wait=Duration.seconds(30))
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        self._guarded(
            "Polls",
            waiting=Waiting.poll(),
            max_wait=Duration.seconds(POLLS_SECONDS),
            on_timeout=later,
        )

    def _status_events(self) -> None:
        """A machine that is over after five seconds at the latest, and a queue of its events."""
        scope = Construct(self, "Ends")
        machine = self._machine(
            scope, stay(scope), query_language=JSONATA, timeout=Duration.seconds(ENDS_SECONDS)
        )
        pattern = events.EventPattern(
            source=["aws.states"], detail={"stateMachineArn": [machine.state_machine_arn]}
        )
        CfnOutput(self, "EventsUrl", value=queue_of(scope, pattern))

    def _durable(self) -> None:
        """A durable function that holds locks, and a queue of the events of its executions."""
        scope = Construct(self, "Durable")
        with tempfile.TemporaryDirectory() as directory:  # the CDK copies it at once
            built = package(WORKER, Path(directory, "function"))
            function = durable_function(
                scope,
                "Function",
                code=lambda_.Code.from_asset(str(built)),
                seconds=DURABLE_SECONDS,
                architecture=lambda_.Architecture.ARM_64,
                log_group=short_logs(scope, "Logs"),
            )
        self.locks.grant_durable(function)
        CfnOutput(self, "DurableFunctionName", value=function.function_name)
        pattern = events.EventPattern(
            source=["aws.lambda"],
            detail_type=["Durable Execution Status Change"],
            detail={"durableExecutionArn": [{"prefix": f"{function.function_arn}:"}]},
        )
        CfnOutput(self, "DurableEventsUrl", value=queue_of(scope, pattern))


# What the state machines of the smoke test consist of.

TASK_TIMEOUT_SECONDS: Final = 2
BY_PATH: Final = sfn.JsonPath.format("form/{}", sfn.JsonPath.string_at("$$.Execution.Name"))
ITEMS: Final = "{% $states.input.items %}"
CAUGHT: Final = ("States.Timeout", "States.DataLimitExceeded", "States.ALL")
"""In the order of a Catch that can tell them apart."""


def errors(
    scope: Construct,
    locks: LockService,
    worker: lambda_.IFunction,
    *,
    child: sfn.IStateMachine,
    interval: Duration,
) -> sfn.IChainable:
    """Four guards, of which the input names one; what leaves it is caught around them by name."""
    around = sfn.Parallel.jsonata(scope, "Around", outputs="{% $states.result[0] %}")
    which = sfn.Choice.jsonata(scope, "Which?")
    for kind, keep_alive in (("Bare", None), ("KeptAlive", interval)):
        terms: dict[str, Any] = {
            "service": locks,
            "lock_name": LOCK,
            "lease": Duration.seconds(60),
            "keep_alive": keep_alive,
        }
        calls = invoke(
            scope,
            f"{kind}Call",
            worker,
            task_timeout=sfn.Timeout.duration(Duration.seconds(TASK_TIMEOUT_SECONDS)),
        )
        nests = tasks.StepFunctionsStartExecution.jsonata(
            scope,
            f"{kind}Nest",
            state_machine=child,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            input=sfn.TaskInput.from_object({}),
        )
        for task in (calls, nests):
            guard = LockGuard(scope, f"{task.node.id}Guard", task=task, **terms)
            wanted = f"{{% $states.input.guard = '{task.node.id}' %}}"
            which.when(sfn.Condition.jsonata(wanted), guard)
    around.branch(which)
    caught = sfn.Pass.jsonata(scope, "Caught")
    for name in CAUGHT:
        outputs = {"caught_as": name, "error": "{% $states.errorOutput.Error %}"}
        around.add_catch(caught, errors=[name], outputs=outputs)
    return around


def forms(
    scope: Construct, locks: LockService, worker: lambda_.IFunction, *, by_path: bool
) -> sfn.IChainable:
    """Guards in a row, around all kinds of tasks, in a machine of either query language."""

    def made(kind: Any, name: str, **props: Any) -> Any:  # noqa: ANN401 - a state
        return (kind if by_path else kind.jsonata)(scope, name, **props)

    def work(name: str) -> sfn.IChainable:
        return (invoke_by_path if by_path else invoke)(scope, name, worker)

    listed = "{% $type($states.input) = 'array' %}"
    is_list = sfn.Condition.is_present("$[0]") if by_path else sfn.Condition.jsonata(listed)
    choice = made(sfn.Choice, "Which?").when(is_list, made(sfn.Fail, "Never", error="Never"))
    inner = "{% 'inner/' & $states.context.Execution.Name %}"
    works = {
        "Bare": work("Work"),
        "Chain": made(sfn.Pass, "First").next(work("Second")),
        "Choice": choice.otherwise(made(sfn.Pass, "Chosen")),
        "Parallel": made(sfn.Parallel, "Both").branch(made(sfn.Pass, "One"), made(sfn.Pass, "Two")),
        "Nested": LockGuard(scope, "Inner", service=locks, lock_name=inner, task=work("Innermost")),
    }
    lock_name = BY_PATH if by_path else PER_EXECUTION
    first, *others = [
        LockGuard(scope, f"{name}Guard", service=locks, lock_name=lock_name, task=each)
        for name, each in works.items()
    ]
    chain = sfn.Chain.start(first)
    for guard in others:
        chain = chain.next(guard)
    return chain


def integers(scope: Construct, locks: LockService, worker: lambda_.IFunction) -> sfn.IChainable:
    """A JSONata task and a JSONPath task; each is given the fencing token of its guard."""
    token = LockGuard.fencing_token_of(scope, "JsonataGuard")
    now = "{% $millis() %}"
    asked = {"types_of": {"fencing_token": token, "now_ms": now}}
    path = LockGuard.fencing_token_path_of(scope, "PathGuard")
    asked_by_path = {"types_of": {"fencing_token": sfn.JsonPath.number_at(path)}}
    payload = sfn.TaskInput.from_object(asked_by_path)
    works = {
        "Jsonata": invoke(scope, "JsonataWork", worker, asked),
        "Path": invoke_by_path(scope, "PathWork", worker, payload=payload),
    }
    both = sfn.Parallel(scope, "Both")
    for name, work in works.items():
        lock_name = sfn.JsonPath.format(f"{name}/{{}}", sfn.JsonPath.string_at("$$.Execution.Name"))
        both.branch(LockGuard(scope, f"{name}Guard", service=locks, lock_name=lock_name, task=work))
    return both


def guard_in_map(
    scope: Construct,
    locks: LockService,
    worker: lambda_.IFunction,  # noqa: ARG001 - as all bodies
    *,
    distributed: bool,
) -> sfn.IChainable:
    """Each iteration, or child execution, wants the lock that its item names."""
    each: sfn.Map | sfn.DistributedMap = (
        sfn.DistributedMap(scope, "Each", label="Each", items_path="$.items")
        if distributed
        else sfn.Map.jsonata(scope, "Each", items=sfn.ProvideItems.jsonata(ITEMS))
    )
    return each.item_processor(
        LockGuard(scope, "Guard", service=locks, lock_name=LOCK, task=stay(scope))
    )
