"""A failing branch or iteration stops its siblings; each has a context object of its own.

AWS: if any branch of a Parallel state fails, the state fails and all its branches are stopped
(developer guide, "Parallel workflow state", Error handling); likewise an inline Map whose
iteration fails ("Map workflow state"). `$$.State` and `$$.Task` are those of the state that asks.

Emulator: the siblings run to their end first, and their side effects happen; parallel branches
share one context object, so a branch can see another branch's state name or task token.

This: all branches of one attempt run in a scope that the first failure ends, and each gets a copy
of the context object. The children of a distributed Map are executions of their own: `map_runs`.
"""

from collections.abc import Callable
from typing import Any

from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _interruptible


def apply() -> None:
    """Run branches and iterations in a common scope."""
    _interruptible.install()
    stepfunctions._run_parallel_branches = _in_scope(stepfunctions._run_parallel_branches)
    stepfunctions._run_map_items = _in_scope(stepfunctions._run_map_items)
    _wrap_run_sub_machine()


def _in_scope(run_all: Callable[..., Any]) -> Callable[..., Any]:
    def run(state: dict[str, Any], *arguments: Any) -> Any:
        if _is_distributed(state):
            return run_all(state, *arguments)
        token = scope.current.set(scope.Scope(scope.current.get()))
        try:
            return run_all(state, *arguments)
        finally:
            scope.current.reset(token)
            # Cancelled branches have left no results: what was made of them must not go on.
            scope.check()

    return run


def _wrap_run_sub_machine() -> None:
    original = stepfunctions._run_sub_machine

    def run_sub_machine(states: Any, start: Any, data: Any, execution: Any, context: Any) -> Any:
        scope.check()
        try:
            return original(states, start, data, execution, dict(context))
        except Exception:
            siblings = scope.current.get()
            if siblings is not None:
                siblings.end()
            raise

    stepfunctions._run_sub_machine = run_sub_machine


def _is_distributed(state: dict[str, Any]) -> bool:
    processor = state.get("Iterator") or state.get("ItemProcessor") or {}
    return (processor.get("ProcessorConfig") or {}).get("Mode") == "DISTRIBUTED"
