"""Workflow variables in JSONPath states, and their scopes.

AWS (developer guide, "Passing data between states with variables"): a JSONPath state assigns with
`Assign`, in which `$` is the task's or branches' raw result, in Pass its result, in Choice and
Wait the effective input, in a catcher the error output; it reads a variable as `$name` wherever a
path may stand. All values of one Assign are computed before any is set. Each Parallel branch and
Map iteration is a scope of its own: it reads outer variables, what it assigns is not seen outside,
and it may not assign a name of an outer scope.

Emulator: JSONPath states neither assign nor read (`"x.$": "$lock.token"` is null), later values
of an Assign see earlier ones, and all branches share one scope.

This: reads in `_resolve_path`, through which all paths go; assigns where results arrive.
A variable no one assigned fails the execution with States.Runtime, instead of being null.
"""

import re
from typing import Any

from ministack.services import stepfunctions

from testbed.localaws.corrections import _current_state

_READ = re.compile(r"\$([^\W\d]\w*)(.*)", re.DOTALL)


class InnerVariables(dict[str, Any]):
    """A branch's variables: those outside, which cannot change while it runs, and its own."""

    def __init__(self, outer: dict[str, Any]) -> None:
        super().__init__(outer)
        self.outer_names = frozenset(outer)


def apply() -> None:
    """Read, assign and scope variables."""
    _current_state.install()
    _wrap_resolve_path()
    stepfunctions._apply_state_assign = _assign_jsonata
    _wrap_result_selector()
    _wrap_wait()
    _wrap_choice()
    _wrap_catcher()
    _wrap_run_sub_machine()


def _wrap_resolve_path() -> None:
    original = stepfunctions._resolve_path

    def resolve_path(path: str, data: Any) -> Any:
        found = _READ.fullmatch(path) if isinstance(path, str) else None
        if found is None:
            return original(path, data)
        name, rest = found.groups()
        variables = _current_state.context().get("variables", {})
        if name not in variables:
            raise stepfunctions._ExecutionError(
                "States.Runtime", f"The variable '${name}' is not defined: {path}"
            )
        return original(f"${rest}", variables[name])

    stepfunctions._resolve_path = resolve_path


def _set(values: dict[str, Any]) -> None:
    variables = _current_state.context().setdefault("variables", {})
    outer = sorted(values.keys() & getattr(variables, "outer_names", frozenset()))
    if outer:
        text = f"Variables of an outer scope cannot be assigned: {', '.join(outer)}"
        raise stepfunctions._ExecutionError("States.Runtime", text)
    variables.update(values)


def _assign_jsonata(
    state: dict[str, Any], data: Any, context: Any, result: Any = None, error_output: Any = None
) -> None:
    if stepfunctions._state_query_language(state, context) != "JSONata" or "Assign" not in state:
        return
    _set(
        stepfunctions._apply_jsonata_template(
            state["Assign"], data, context, result=result, error_output=error_output
        )
    )


def _assign_jsonpath(state: dict[str, Any], data: Any, query_language: str) -> None:
    if query_language != "JSONata" and "Assign" in state:
        _set(stepfunctions._resolve_params_obj(state["Assign"], data, _current_state.context()))


def _language(state: dict[str, Any]) -> str:
    return str(stepfunctions._state_query_language(state, _current_state.context()))


def _wrap_result_selector() -> None:
    """Here the raw result of Pass, Task, Parallel and Map arrives, and here alone."""

    def apply_result_selector(state: dict[str, Any], result: Any) -> Any:
        selector, selected = state.get("ResultSelector"), result
        if selector:
            context = _current_state.context()
            selected = stepfunctions._resolve_params_obj(selector, result, context)
        _assign_jsonpath(state, result, _language(state))
        return selected

    stepfunctions._apply_result_selector = apply_result_selector


def _wrap_wait() -> None:
    original = stepfunctions._execute_wait

    def execute_wait(state: dict[str, Any], data: Any, context: Any = None) -> Any:
        left = original(state, data, context)
        effective = stepfunctions._apply_input_path(state, data, context)
        _assign_jsonpath(state, effective, _language(state))
        return left

    stepfunctions._execute_wait = execute_wait


def _wrap_choice() -> None:
    original = stepfunctions._execute_choice

    def execute_choice(state: dict[str, Any], data: Any, context: Any = None) -> Any:
        output, following = original(state, data, context)
        language = stepfunctions._state_query_language(state, context)
        if language != "JSONata":
            effective = stepfunctions._apply_input_path(state, data, context)
            matching = (
                rule
                for rule in state["Choices"]
                if stepfunctions._evaluate_rule(rule, effective, context)
            )
            _assign_jsonpath(next(matching, state), effective, language)
        return output, following

    stepfunctions._execute_choice = execute_choice


def _wrap_catcher() -> None:
    original = stepfunctions._apply_catcher

    def apply_catcher(
        catcher: dict[str, Any], data: Any, context: Any, query_language: str, error: Any
    ) -> Any:
        # A catcher has no query language of its own, and the emulator asks it for one.
        typed_catcher = {**catcher, "QueryLanguage": query_language}
        output = original(typed_catcher, data, context, query_language, error)
        _assign_jsonpath(catcher, error, query_language)
        return output

    stepfunctions._apply_catcher = apply_catcher


def _wrap_run_sub_machine() -> None:
    original = stepfunctions._run_sub_machine

    def run_sub_machine(states: Any, start: Any, data: Any, execution: Any, context: Any) -> Any:
        scoped = {**context, "variables": InnerVariables(context["variables"])}
        return original(states, start, data, execution, scoped)

    stepfunctions._run_sub_machine = run_sub_machine
