"""What the state machines of the smoke test consist of."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService
from tests.e2e.guard.stack import INPUT, PER_EXECUTION, RESULT
from tests.e2e.workflow_parts import LOCK, stay

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
