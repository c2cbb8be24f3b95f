"""JSONata fields of Parallel, Succeed and Choice.

AWS (developer guide, "Transforming data with JSONata in Step Functions"; "Parallel workflow
state", "Succeed workflow state", "Choice workflow state"): a JSONata Parallel gives its branches
`Arguments` if it has some, else its input; `Output` and `Assign` are evaluated with the list of
the branches' results as `$states.result`, inside the state's Retry and Catch. Succeed has an
Output. A Choice's Condition must be a boolean, and if no rule matches, the state's own Output and
Assign apply to Default.

Emulator: ignores all of these; a Condition of any type counts as true or false.

This: evaluates them, with the emulator's own JSONata.
"""

from typing import Any

from ministack.services import stepfunctions

from testbed.localaws.corrections import _interruptible


def apply() -> None:
    """Evaluate the ignored fields."""
    _interruptible.install()
    _wrap_parameters()
    _wrap_parallel()
    _wrap_output_path()
    _wrap_choice()


def _is_jsonata(state: dict[str, Any], context: Any) -> bool:
    return bool(stepfunctions._state_query_language(state, context) == "JSONata")


def _wrap_parameters() -> None:
    """The emulator asks for Parameters where it should ask for Arguments: in Parallel only."""
    original = stepfunctions._apply_parameters

    def apply_parameters(state: dict[str, Any], data: Any, context: Any = None) -> Any:
        if _is_jsonata(state, context):
            return stepfunctions._apply_jsonata_arguments(state, data, context)
        return original(state, data, context)

    stepfunctions._apply_parameters = apply_parameters


def _wrap_parallel() -> None:
    original = stepfunctions._run_parallel_branches

    def run_branches(state: dict[str, Any], data: Any, execution: Any, context: Any) -> Any:
        results, following = original(state, data, execution, context)
        if not _is_jsonata(state, context):
            return results, following
        output = stepfunctions._apply_jsonata_output(
            state, data, context, result=results, default=results
        )
        stepfunctions._apply_state_assign(state, data, context, result=results)
        return output, following

    stepfunctions._run_parallel_branches = run_branches


def _wrap_output_path() -> None:
    original = stepfunctions._apply_output_path

    def apply_output_path(state: dict[str, Any], data: Any, context: Any = None) -> Any:
        if state.get("Type") == "Succeed" and _is_jsonata(state, context):
            return stepfunctions._apply_jsonata_output(state, data, context, default=data)
        return original(state, data, context)

    stepfunctions._apply_output_path = apply_output_path


def _wrap_choice() -> None:
    original = stepfunctions._execute_choice

    def execute_choice(state: dict[str, Any], data: Any, context: Any = None) -> Any:
        if not _is_jsonata(state, context):
            return original(state, data, context)
        for rule in state["Choices"]:
            typed_rule = {**rule, "QueryLanguage": "JSONata"}
            if stepfunctions._jsonata_state_field(
                typed_rule, "Condition", "boolean", data, context
            ):
                return _leave(typed_rule, rule["Next"], data, context)
        if "Default" not in state:
            text = "No choice rule matched and no Default"
            raise stepfunctions._ExecutionError("States.NoChoiceMatched", text)
        return _leave(state, state["Default"], data, context)

    stepfunctions._execute_choice = execute_choice


def _leave(chosen: dict[str, Any], following: str, data: Any, context: Any) -> tuple[Any, str]:
    output = stepfunctions._apply_jsonata_output(chosen, data, context, default=data)
    stepfunctions._apply_state_assign(chosen, data, context)
    return output, following
