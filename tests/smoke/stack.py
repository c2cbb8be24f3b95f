"""The workflows of the smoke test, in one stack: all that AWS surely accepts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from infra.durable_package import package
from tests.e2e.durable.executions import WORKER
from tests.e2e.guard.stack import INPUT, JSONATA, PER_EXECUTION, RESULT, Spoilt
from tests.e2e.workflow_parts import LOCK, stay

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
            ("FormsPath", forms_by_path, None),
            ("FormsJsonata", forms_in_jsonata, JSONATA),
            ("Integers", integers, None),
            ("GuardInMap", guard_in_map, JSONATA),
            ("GuardInDistributedMap", guard_in_distributed_map, None),
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
            log_group=logs.LogGroup(
                self,
                f"{construct_id}Logs",
                retention=logs.RetentionDays.ONE_DAY,
                removal_policy=RemovalPolicy.DESTROY,
            ),
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
        queue = sqs.Queue(scope, "Events", removal_policy=RemovalPolicy.DESTROY)
        pattern = events.EventPattern(
            source=["aws.states"], detail={"stateMachineArn": [machine.state_machine_arn]}
        )
        rule = events.Rule(scope, "Rule", event_pattern=pattern)
        rule.add_target(targets.SqsQueue(queue))
        CfnOutput(self, "EventsUrl", value=queue.queue_url)

    def _durable(self) -> None:
        """A durable function that holds locks, and a queue of the events of its executions."""
        scope = Construct(self, "Durable")
        with tempfile.TemporaryDirectory() as directory:  # the CDK copies it at once
            built = package(WORKER, Path(directory, "function"))
            function = lambda_.Function(
                scope,
                "Function",
                runtime=lambda_.Runtime.PYTHON_3_13,
                architecture=lambda_.Architecture.ARM_64,
                code=lambda_.Code.from_asset(str(built)),
                handler="inside.durable",
                timeout=Duration.minutes(1),
                durable_config=lambda_.DurableConfig(
                    execution_timeout=Duration.seconds(DURABLE_SECONDS)
                ),
                log_group=logs.LogGroup(
                    scope,
                    "Logs",
                    retention=logs.RetentionDays.ONE_DAY,
                    removal_policy=RemovalPolicy.DESTROY,
                ),
            )
        self.locks.grant_durable(function)
        CfnOutput(self, "DurableFunctionName", value=function.function_name)
        queue = sqs.Queue(scope, "Events", removal_policy=RemovalPolicy.DESTROY)
        pattern = events.EventPattern(
            source=["aws.lambda"],
            detail_type=["Durable Execution Status Change"],
            detail={"durableExecutionArn": [{"prefix": f"{function.function_arn}:"}]},
        )
        rule = events.Rule(scope, "Rule", event_pattern=pattern)
        rule.add_target(targets.SqsQueue(queue))
        CfnOutput(self, "DurableEventsUrl", value=queue.queue_url)


# What the state machines of the smoke test consist of.

TASK_TIMEOUT_SECONDS: Final = 2
MOST_SECONDS: Final = 600
BY_PATH: Final = sfn.JsonPath.format("form/{}", sfn.JsonPath.string_at("$$.Execution.Name"))
ITEMS: Final = "{% $states.input.items %}"
CAUGHT: Final = ("States.Timeout", "States.DataLimitExceeded", "States.ALL")
"""In the order of a Catch that can tell them apart."""


def invoke(
    scope: Construct,
    name: str,
    worker: lambda_.IFunction,
    payload: str | dict[str, Any] = INPUT,
    **options: Any,  # noqa: ANN401 - a LambdaInvoke's
) -> tasks.LambdaInvoke:
    """The function in a JSONata state."""
    given = sfn.TaskInput.from_text if isinstance(payload, str) else sfn.TaskInput.from_object
    return tasks.LambdaInvoke.jsonata(
        scope,
        name,
        lambda_function=worker,
        payload=given(payload),  # type: ignore[arg-type]  # one type for each
        outputs=RESULT,
        retry_on_service_exceptions=False,
        **options,
    )


def invoke_by_path(
    scope: Construct,
    name: str,
    worker: lambda_.IFunction,
    **options: Any,  # noqa: ANN401 - a LambdaInvoke's
) -> tasks.LambdaInvoke:
    """The function in a JSONPath state."""
    return tasks.LambdaInvoke.json_path(
        scope,
        name,
        lambda_function=worker,
        output_path="$.Payload",
        retry_on_service_exceptions=False,
        **options,
    )


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


def forms_by_path(
    scope: Construct, locks: LockService, worker: lambda_.IFunction
) -> sfn.IChainable:
    """Guards in a row, around all kinds of tasks, in a JSONPath machine."""
    choice = sfn.Choice(scope, "Which?")
    choice.when(sfn.Condition.is_present("$[0]"), sfn.Fail(scope, "Never", error="Never"))
    choice.otherwise(sfn.Pass(scope, "Chosen"))
    both = sfn.Parallel(scope, "Both").branch(sfn.Pass(scope, "One"), sfn.Pass(scope, "Two"))
    chain = sfn.Pass(scope, "First").next(invoke_by_path(scope, "Second", worker))
    return _in_a_row(
        scope,
        locks,
        BY_PATH,
        {
            "Bare": invoke_by_path(scope, "Work", worker),
            "Chain": chain,
            "Choice": choice,
            "Parallel": both,
            "Nested": _nested(scope, locks, invoke_by_path(scope, "Innermost", worker)),
        },
    )


def forms_in_jsonata(
    scope: Construct, locks: LockService, worker: lambda_.IFunction
) -> sfn.IChainable:
    """The same in a JSONata machine."""
    choice = sfn.Choice.jsonata(scope, "Which?")
    listed = sfn.Condition.jsonata("{% $type($states.input) = 'array' %}")
    choice.when(listed, sfn.Fail.jsonata(scope, "Never", error="Never"))
    choice.otherwise(sfn.Pass.jsonata(scope, "Chosen"))
    one, two = (sfn.Pass.jsonata(scope, name) for name in ("One", "Two"))
    chain = sfn.Pass.jsonata(scope, "First").next(invoke(scope, "Second", worker))
    return _in_a_row(
        scope,
        locks,
        PER_EXECUTION,
        {
            "Bare": invoke(scope, "Work", worker),
            "Chain": chain,
            "Choice": choice,
            "Parallel": sfn.Parallel.jsonata(scope, "Both").branch(one, two),
            "Nested": _nested(scope, locks, invoke(scope, "Innermost", worker)),
        },
    )


def _nested(scope: Construct, locks: LockService, task: sfn.IChainable) -> LockGuard:
    inner = "{% 'inner/' & $states.context.Execution.Name %}"
    return LockGuard(scope, "Inner", service=locks, lock_name=inner, task=task)


def _in_a_row(
    scope: Construct, locks: LockService, lock_name: str, works: dict[str, Any]
) -> sfn.IChainable:
    first, *others = [
        LockGuard(scope, f"{name}Guard", service=locks, lock_name=lock_name, task=work)
        for name, work in works.items()
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
) -> sfn.IChainable:
    """Each iteration wants the lock that its item names."""
    each = sfn.Map.jsonata(scope, "Each", items=sfn.ProvideItems.jsonata(ITEMS))
    return each.item_processor(
        LockGuard(scope, "Guard", service=locks, lock_name=LOCK, task=stay(scope))
    )


def guard_in_distributed_map(
    scope: Construct,
    locks: LockService,
    worker: lambda_.IFunction,  # noqa: ARG001 - as all bodies
) -> sfn.IChainable:
    """Each child, an execution of its own, wants the lock that its item names."""
    each = sfn.DistributedMap(scope, "Each", label="Each", items_path="$.items")
    return each.item_processor(
        LockGuard(scope, "Guard", service=locks, lock_name=LOCK, task=stay(scope))
    )
