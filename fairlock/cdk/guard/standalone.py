"""A whole state machine with one guard, as the JSON that Step Functions takes: no app, no stack.

`LockGuard` makes the guard around a placeholder, whose place the task, JSON of a user's, takes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.fragments import WorkflowVariable, require
from fairlock.cdk.guard.guard import LockGuard
from fairlock.cdk.guard.guard_rules import faults_of_end
from fairlock.cdk.guard.waiting import Waiting, longest_wait_seconds
from fairlock.cdk.machines import read_definition, targets
from fairlock.errors import InvalidRequest
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS

Json = dict[str, Any]

PLACEHOLDER: Final = "The work of the guard"
"""The name of the state in whose place the work is put."""

_LEADS_ON: Final = ("Next", "Catch", "Choices", "Default")
_MADE_BY_THE_GUARD: Final = ("Next", "Catch", "End")


def as_machine(work: object) -> Json:
    """A machine as it is, and a state as a machine."""
    found = work if isinstance(work, dict) else {}
    states = found.get("States")
    if isinstance(states, dict) and str(found.get("StartAt")) in states:
        return copy.deepcopy(found)
    rule = "must be a state, with its Type, or a machine, with StartAt and States"
    require("task", isinstance(found.get("Type"), str), rule, work)
    led_on = ", ".join(field for field in _LEADS_ON if field in found)
    rule = "must not lead to other states: give them too, in a machine with StartAt and States"
    require("task", not led_on, rule, led_on)
    ends = {} if found["Type"] in {"Succeed", "Fail"} else {"End": True}
    return {"StartAt": "Work", "States": {"Work": {**found, **ends}}}


def is_bare_task(machine: Json) -> bool:
    """Whether the work is one Task state, which the guard leads on and catches the errors of."""
    [first, *more] = machine["States"].values()
    is_task = isinstance(first, dict) and first.get("Type") == "Task"
    return is_task and not more and not any(field in first for field in _LEADS_ON)


def names_in(machine: Json) -> set[str]:
    """The names of all states."""
    return {name for scope in _scopes(machine) for name in scope["States"]}


def require_evaluated(made: Json, variable: str) -> None:
    """Checks that the machine reads variables of guards where they exist and are evaluated."""
    found = read_definition(made)
    for use in [*found.undefined, *found.as_text]:
        rule = (
            f"must read the fencing token as '{{% ${variable}.fencing_token %}}' in a JSONata "
            f"state, and as 'token.$': '${variable}.fencing_token' in a JSONPath state: anything "
            "else is handed on as text, or fails; children of a Distributed Map get it by its "
            "ItemSelector"
        )
        raise InvalidRequest(field="task", rule=rule, value=f"the state {use.state}")


def check_states_of(machine: Json) -> None:
    """Checks what Step Functions refuses in every machine, and what would lead past the guard."""
    for scope in _scopes(machine):
        for name, state in scope["States"].items():
            has_resource = state.get("Type") != "Task" or state.get("Resource")
            rule = (
                "must have a Resource in each Task state, such as 'arn:aws:states:::lambda:invoke'"
            )
            require("task", has_resource, rule, f"the state {name}")
        steps = [("StartAt", scope.get("StartAt")), *_transitions(scope)]
        for name, target in steps:
            rule = (
                "must lead to states of the same machine, branch or Map only: the guard "
                "connects the task"
            )
            require("task", target in scope["States"], rule, f"{name} -> {target}")


def _transitions(scope: Json) -> Iterator[tuple[str, object]]:
    for name, state in scope["States"].items():
        try:
            yield from [(name, target) for target in targets(state)]
        except (TypeError, AttributeError):
            rule = "must have lists of objects as Catch and Choices"
            raise InvalidRequest(field="task", rule=rule, value=f"the state {name}") from None


def put_in(made: Json, machine: Json, *, bare: bool) -> None:
    """Puts the work where its placeholder is: a bare task in its place, all else in a branch."""
    scope = next(scope for scope in _scopes(made) if PLACEHOLDER in scope["States"])
    rendered = scope["States"].pop(PLACEHOLDER)
    if not bare:
        scope.update(StartAt=machine["StartAt"], States=machine["States"])
        return
    [(name, task)] = machine["States"].items()
    own = {key: value for key, value in task.items() if key not in _MADE_BY_THE_GUARD}
    added = {key: rendered[key] for key in _MADE_BY_THE_GUARD if key in rendered}
    scope["States"][name] = {**own, **added}
    _rename(scope, PLACEHOLDER, name)


def _rename(scope: Json, old: str, new: str) -> None:
    places = [scope, *scope["States"].values()]
    places += [rule for state in scope["States"].values() for rule in state.get("Choices", ())]
    for place in places:
        for field in ("StartAt", "Next", "Default"):
            if place.get(field) == old:
                place[field] = new


def _scopes(made: Any) -> Iterator[Json]:  # noqa: ANN401 - what a user has written
    """The machine, its branches and the bodies of its Maps."""
    states = made.get("States") if isinstance(made, dict) else None
    if not isinstance(states, dict) or not all(isinstance(one, dict) for one in states.values()):
        rule = "must have an object with States wherever a machine, a branch or a Map begins"
        raise InvalidRequest(field="task", rule=rule, value=made)
    yield made
    for state in list(states.values()):
        branches = state.get("Branches", [])
        yield from (
            scope
            for body in (branches if isinstance(branches, list) else [branches])
            for scope in _scopes(body)
        )
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from _scopes(state[field])


FUNCTIONS: Final = ("AcquireFunctionArn", "HeartbeatFunctionArn", "ReleaseFunctionArn")
"""The outputs of the service's stack that a guard needs."""

WAYS_TO_WAIT: Final = {"queue": Waiting.queue(), "poll": Waiting.poll()}

_PATHS: Final = ("$.", "$$.")
_NO_ARN: Final = "arn:aws:lambda:us-east-1:000000000000:function:"
_OF_THE_MACHINE: Final = ("QueryLanguage", "TimeoutSeconds", "Version")


class FunctionsByArn(Construct):
    """All that a guard needs of a lock service: its functions, known by their ARNs alone."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
    ) -> None:
        """Refers to the functions."""
        super().__init__(scope, construct_id)
        self.acquire_function = self._function("Acquire", acquire_function_arn)
        self.heartbeat_function = self._function("Heartbeat", heartbeat_function_arn)
        self.release_function = self._function("Release", release_function_arn)

    def _function(self, operation: str, arn: str) -> lambda_.IFunction:
        return lambda_.Function.from_function_attributes(
            self, operation, function_arn=arn, same_environment=True
        )


def guarded_machine(
    work: object,
    *,
    functions: Mapping[str, str],
    lock_name: str | Sequence[str],
    lease_seconds: int = DEFAULT_LEASE_SECONDS,
    max_wait_seconds: int | None = None,
    keep_alive_seconds: int | None = None,
    express: bool = False,
    name: str = "Guard",
    partition: str = "aws",
    max_hold_seconds: int | None = None,
    **guard_options: Any,  # noqa: ANN401 - each of another type
) -> Json:
    """A state machine that runs the work while it holds the lock.

    The work is a state that leads nowhere, or a machine, `{"StartAt": …, "States": …}`, as JSON; a
    state of it is called "Work" if it has no name. `functions` has the ARN for each of `FUNCTIONS`,
    or a text that stands for it. A lock name may be a JSONPath (`$.…`). `name` prefixes the names
    of the guard's states. All else is as of `LockGuard`.
    """
    machine = as_machine(work)
    others = names_in(machine)
    check_states_of(machine)
    require("name", name, "must be a text that is not empty", name)
    stack = Stack()
    service = FunctionsByArn(
        stack,
        "Service",
        acquire_function_arn=_NO_ARN + FUNCTIONS[0],
        heartbeat_function_arn=_NO_ARN + FUNCTIONS[1],
        release_function_arn=_NO_ARN + FUNCTIONS[2],
    )
    bare = is_bare_task(machine)
    max_wait = None if max_wait_seconds is None else Duration.seconds(max_wait_seconds)
    if max_hold_seconds is not None:
        wait = longest_wait_seconds(max_wait, express=express)
        waits = 0 if isinstance(lock_name, str) else wait
        task = machine["States"][machine["StartAt"]] if bare else {}
        for fault in faults_of_end(max_hold_seconds, task, wait_seconds=waits):
            raise fault
    function = service.acquire_function
    placeholder: sfn.IChainable = (
        tasks.LambdaInvoke(
            stack, PLACEHOLDER, lambda_function=function, retry_on_service_exceptions=False
        )
        if bare
        else sfn.Pass(stack, PLACEHOLDER)
    )
    guard = LockGuard(
        stack,
        name,
        service=service,
        task=placeholder,
        lock_name=_given(lock_name),
        lease=Duration.seconds(lease_seconds),
        max_wait=max_wait,
        keep_alive=None if keep_alive_seconds is None else Duration.seconds(keep_alive_seconds),
        express=express,
        **guard_options,
    )
    graph = stack.resolve(sfn.StateGraph(guard.start_state, name).to_graph_json())
    named = {_NO_ARN + output: arn for output, arn in functions.items()}
    made: Json = _literal(graph, named, partition)
    both = sorted(names_in(made) & others)
    rule = "must have other names for its states than the guard; or give the guard another name"
    require("task", not both, rule, ", ".join(both))
    put_in(made, machine, bare=bare)
    variable = WorkflowVariable.of(stack, name)
    is_one = isinstance(lock_name, str)
    token = variable.field("fencing_token") if is_one else guard.fencing_tokens
    comment = f"Guarded by Fairlock. The task's fencing token{'' if is_one else 's'}: {token}"
    top: Json = {key: machine[key] for key in _OF_THE_MACHINE if key in machine}
    guarded = {"Comment": comment, **top, **made}
    require_evaluated(guarded, variable.name)
    return guarded


def _given(lock_name: str | Sequence[str]) -> str | list[str]:
    """The lock name as a guard takes it, with a token for each JSONPath."""
    if not isinstance(lock_name, str):
        return [str(_given(each)) for each in lock_name]
    return sfn.JsonPath.string_at(lock_name) if lock_name.startswith(_PATHS) else lock_name


def _literal(value: Any, named: Mapping[str, str], partition: str) -> Any:  # noqa: ANN401 - any JSON
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
