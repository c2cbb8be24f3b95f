"""A JSONPath that selects nothing fails the state.

AWS (developer guide, "Handling errors in Step Functions workflows"; "Processing input and output
in Step Functions"): a path whose value is not there fails the execution with States.Runtime, in
the argument of an intrinsic function the state with States.ParameterPathFailure. Only a Choice
may ask by IsPresent.

Emulator: such a path is null, in a comparison of a Choice false.

This: checks again whether a path that gave null selects something, and fails if it does not, or if
the path is of a kind that the emulator cannot read (filters, slices, deep scans).
"""

import contextvars
from typing import Any

from ministack.services import stepfunctions

_may_be_missing: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "may_be_missing", default=False
)


def apply() -> None:
    """Fail on missing paths, but for IsPresent."""
    _wrap_resolve_path()
    _wrap_evaluate_rule()
    _wrap_intrinsic_argument()


def _wrap_resolve_path() -> None:
    original = stepfunctions._resolve_path

    def resolve_path(path: Any, data: Any) -> Any:
        value = original(path, data)
        if value is None and isinstance(path, str) and path.startswith("$") and path != "$":
            tokens = stepfunctions._parse_jsonpath_tokens(path)
            if tokens is None:
                raise stepfunctions._ExecutionError(
                    "States.Runtime", f"The embedded AWS cannot read the JSONPath '{path}'"
                )
            if not _may_be_missing.get() and not _exists(tokens, data):
                text = f"Invalid path '{path}': it could not be found in the input"
                raise stepfunctions._ExecutionError("States.Runtime", text)
        return value

    stepfunctions._resolve_path = resolve_path


def _exists(tokens: list[tuple[str, Any]], data: Any) -> bool:
    """Whether a path without wildcards leads to a value, null included."""
    containers = {"field": dict, "index": list}
    for kind, key in tokens:
        if not isinstance(data, containers[kind]):
            return False
        if (key not in data) if kind == "field" else (key >= len(data)):
            return False
        data = data[key]
    return True


def _wrap_evaluate_rule() -> None:
    original = stepfunctions._evaluate_rule

    def evaluate_rule(rule: dict[str, Any], data: Any, context: Any = None) -> bool:
        token = _may_be_missing.set("IsPresent" in rule)
        try:
            return bool(original(rule, data, context))
        finally:
            _may_be_missing.reset(token)

    stepfunctions._evaluate_rule = evaluate_rule


def _wrap_intrinsic_argument() -> None:
    original = stepfunctions._eval_intrinsic_arg

    def evaluate(argument: tuple[Any, ...], data: Any, context: Any) -> Any:
        try:
            return original(argument, data, context)
        except stepfunctions._ExecutionError as error:
            raise stepfunctions._ExecutionError(
                "States.ParameterPathFailure", error.cause
            ) from None

    stepfunctions._eval_intrinsic_arg = evaluate
