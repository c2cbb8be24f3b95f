"""A guard believes only the answer to its own acquisition.

A task token can be completed by every caller that knows it, with anything. The owner id is known
to the service and to this workflow only, so an answer that names another one is not the service's.
"""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.repeats import ANY_ERROR, ERROR_OUTPUT, EVALUATION_ERROR
from fairlock.cdk.workflow_variable import WorkflowVariable, jsonata
from fairlock.errors import LockStoreUnavailable

_ANOTHER: Final = "$error('the answer names another lock or another owner')"
ANSWER: Final = "$answer"
"""The answer, in what `if_own` is given."""


def if_own(variable: WorkflowVariable, answer: str, *, then: str, only_if: str = "true") -> str:
    """A value, if the answer is one to this very acquisition; else an evaluation error."""
    own = (
        f"{ANSWER}.lock_name = {variable.field('lock_name')}"
        f" and {ANSWER}.owner_id = {variable.field('owner_id')} and {only_if}"
    )
    return jsonata(f"({ANSWER} := {answer}; {own} ? {then} : {_ANOTHER})")


def catch_unknown(
    acquire: sfn.TaskStateBase, variable: WorkflowVariable, on_error: sfn.IChainable
) -> None:
    """Goes to `on_error` when repeats did not help: the outcome of an acquire is unknown.

    Only the check of its answer can fail to evaluate there: the guard evaluates what its caller
    wrote when it is entered.
    """
    lock_name = variable.field("lock_name")
    unknown = {
        "Error": LockStoreUnavailable.__name__,
        "Cause": jsonata(f"'lock ' & {lock_name} & ': the answers were to another acquisition'"),
    }
    acquire.add_catch(on_error, errors=[EVALUATION_ERROR], outputs=unknown)
    acquire.add_catch(on_error, errors=[ANY_ERROR], outputs=ERROR_OUTPUT)
