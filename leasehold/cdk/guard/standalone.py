"""A whole state machine with one guard, as the JSON that Step Functions takes: no app, no stack.

The guard is made by `LockGuard` around a placeholder, and the task that was given takes its place.
So its states are those of every other guard.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from leasehold.cdk.guard.guard import LockGuard
from leasehold.cdk.guard.waiting import Waiting
from leasehold.cdk.service.imported_service import ImportedLockService
from leasehold.cdk.workflow_variable import WorkflowVariable
from leasehold.errors import InvalidRequest

Json = dict[str, Any]

FUNCTIONS: Final = ("AcquireFunctionArn", "HeartbeatFunctionArn", "ReleaseFunctionArn")
"""The outputs of the service's stack that a guard needs."""

WAYS_TO_WAIT: Final = {"queue": Waiting.queue(), "polling": Waiting.poll()}

_PLACEHOLDER: Final = "The work of the guard"
_NO_ARN: Final = "arn:aws:lambda:us-east-1:000000000000:function:"
_OF_THE_MACHINE: Final = ("QueryLanguage", "TimeoutSeconds", "Version")
_LEADS_ON: Final = ("Next", "Catch", "Choices", "Default")
_MADE_BY_THE_GUARD: Final = ("Next", "Catch", "End")


def guarded_machine(
    work: object,
    *,
    functions: Mapping[str, str],
    lock_name: str,
    limit: int = 1,
    lease_seconds: int = 60,
    max_wait_seconds: int | None = None,
    waiting: Waiting | None = None,
    keep_alive_seconds: int | None = None,
    express: bool = False,
    name: str = "Guard",
    partition: str = "aws",
) -> Json:
    """A state machine that runs the work while it holds the lock.

    Args:
        work: a state that leads nowhere, or a machine, `{"StartAt": …, "States": …}`, as JSON.
        functions: the ARN for each of `FUNCTIONS`, or a text that stands for it.
        lock_name: a literal, JSONata (`{% … %}`), or a JSONPath (`$.…`).
        limit: see `LockGuard`, also for the others.
        lease_seconds: the lease.
        max_wait_seconds: the longest wait; zero skips a busy lock.
        waiting: the way to wait.
        keep_alive_seconds: how often a heartbeat beside the work renews the lease.
        express: whether it will be an Express workflow.
        name: prefixes the names of the guard's states; a state of the work is called "Work" if it
            has no name.
        partition: of AWS.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    machine = _as_machine(work)
    stack = Stack()
    service = ImportedLockService(
        stack,
        "Service",
        acquire_function_arn=_NO_ARN + FUNCTIONS[0],
        heartbeat_function_arn=_NO_ARN + FUNCTIONS[1],
        release_function_arn=_NO_ARN + FUNCTIONS[2],
    )
    bare = _bare_task(machine)
    guard = LockGuard(
        stack,
        name,
        service=service,
        task=_placeholder_task(stack, service) if bare else sfn.Pass(stack, _PLACEHOLDER),
        lock_name=sfn.JsonPath.string_at(lock_name) if lock_name.startswith("$") else lock_name,
        limit=limit,
        lease=Duration.seconds(lease_seconds),
        max_wait=None if max_wait_seconds is None else Duration.seconds(max_wait_seconds),
        waiting=waiting,
        keep_alive=None if keep_alive_seconds is None else Duration.seconds(keep_alive_seconds),
        express=express,
    )
    graph = stack.resolve(sfn.StateGraph(guard.start_state, name).to_graph_json())
    named = {_NO_ARN + output: arn for output, arn in functions.items()}
    made: Json = _literal(graph, named, partition)
    _require_other_names(made, machine)
    _put_in(made, machine, bare=bare)
    token = WorkflowVariable.of(stack, name).field("fencing_token")
    top: Json = {key: machine[key] for key in _OF_THE_MACHINE if key in machine}
    return {"Comment": f"Guarded by Leasehold. The task's fencing token: {token}", **top, **made}


def _as_machine(work: object) -> Json:
    states = work.get("States") if isinstance(work, dict) else None
    if isinstance(work, dict) and isinstance(states, dict) and work.get("StartAt") in states:
        return copy.deepcopy(work)
    if not isinstance(work, dict) or not isinstance(work.get("Type"), str):
        rule = "must be a state, with its Type, or a machine, with StartAt and States"
        raise InvalidRequest(field="task", rule=rule, value=work)
    led_on = [field for field in _LEADS_ON if field in work]
    if led_on:
        rule = "must not lead to other states: give them too, in a machine with StartAt and States"
        raise InvalidRequest(field="task", rule=rule, value=", ".join(led_on))
    ends = {} if work["Type"] in {"Succeed", "Fail"} else {"End": True}
    return {"StartAt": "Work", "States": {"Work": {**work, **ends}}}


def _bare_task(machine: Json) -> bool:
    """Whether the work is one Task state, which the guard leads on and catches the errors of."""
    [first, *more] = machine["States"].values()
    is_task = isinstance(first, dict) and first.get("Type") == "Task"
    return is_task and not more and not any(field in first for field in _LEADS_ON)


def _placeholder_task(stack: Stack, service: ImportedLockService) -> tasks.LambdaInvoke:
    function = service.acquire_function
    return tasks.LambdaInvoke(
        stack, _PLACEHOLDER, lambda_function=function, retry_on_service_exceptions=False
    )


def _literal(value: Any, named: Mapping[str, str], partition: str) -> Any:  # noqa: ANN401 - any JSON
    """The value without CloudFormation's functions, and with the ARNs that were given."""
    if isinstance(value, list):
        return [_literal(each, named, partition) for each in value]
    if not isinstance(value, dict):
        return named.get(value, value) if isinstance(value, str) else value
    if "Ref" in value:
        return partition
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return separator.join(_literal(parts, named, partition))
    return {key: _literal(each, named, partition) for key, each in value.items()}


def _put_in(made: Json, machine: Json, *, bare: bool) -> None:
    """Puts the work where its placeholder is."""
    for scope in _scopes(made):
        rendered = scope["States"].get(_PLACEHOLDER)
        if rendered is None:
            continue
        if not bare:
            scope.clear()
            scope.update(StartAt=machine["StartAt"], States=machine["States"])
            return
        [(name, task)] = machine["States"].items()
        own = {key: value for key, value in task.items() if key not in _MADE_BY_THE_GUARD}
        added = {key: rendered[key] for key in _MADE_BY_THE_GUARD if key in rendered}
        states = {**scope["States"], name: {**own, **added}}
        del states[_PLACEHOLDER]
        scope["States"] = states
        _rename(scope, _PLACEHOLDER, name)
        return


def _rename(scope: Json, old: str, new: str) -> None:
    """Follows a state that has another name now."""
    places = [scope, *scope["States"].values()]
    places += [rule for state in scope["States"].values() for rule in state.get("Choices", ())]
    for place in places:
        for field in ("StartAt", "Next", "Default"):
            if place.get(field) == old:
                place[field] = new


def _scopes(made: Json) -> Iterator[Json]:
    yield made
    for state in list(made["States"].values()):
        for body in (*state.get("Branches", ()), state.get("ItemProcessor"), state.get("Iterator")):
            if body:
                yield from _scopes(body)


def _names(machine: Json) -> set[str]:
    return {name for scope in _scopes(machine) for name in scope["States"]}


def _require_other_names(made: Json, machine: Json) -> None:
    own, others = _names(made), _names(machine)
    if own & others:
        rule = "must have other names for its states than the guard; or give the guard another name"
        raise InvalidRequest(field="task", rule=rule, value=", ".join(sorted(own & others)))
