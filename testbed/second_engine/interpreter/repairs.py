"""What is wrong in LocalStack's interpreter, and would hide everything behind it.

Each repair says what AWS does. docs/second-engine.md lists them as differences of that engine.
"""

from typing import Any

from localstack.aws.api.stepfunctions import EvaluationFailedEventDetails, HistoryEventType
from localstack.services.stepfunctions.asl.component.common.catch.catcher_decl import CatcherDecl
from localstack.services.stepfunctions.asl.component.common.catch.catcher_outcome import (
    CatcherOutcomeCaught,
)
from localstack.services.stepfunctions.asl.component.common.error_name.error_name import ErrorName
from localstack.services.stepfunctions.asl.component.common.error_name.failure_event import (
    FailureEvent,
    FailureEventException,
)
from localstack.services.stepfunctions.asl.component.common.error_name.states_error_name import (
    StatesErrorName,
)
from localstack.services.stepfunctions.asl.component.common.error_name.states_error_name_type import (  # noqa: E501 - LocalStack's name
    StatesErrorNameType,
)
from localstack.services.stepfunctions.asl.component.common.string.string_expression import (
    StringJSONata,
)
from localstack.services.stepfunctions.asl.component.state.state import CommonStateField
from localstack.services.stepfunctions.asl.component.state.state_execution.state_parallel import (
    branches_decl,
)
from localstack.services.stepfunctions.asl.component.state.state_execution.state_task.service import (  # noqa: E501 - LocalStack's name
    state_task_service_callback,
)
from localstack.services.stepfunctions.asl.eval.event.event_detail import EventDetails
from localstack.services.stepfunctions.asl.jsonata.jsonata import JSONataException


def apply() -> None:
    """Replace functions of the interpreter."""
    _give_each_attempt_a_task_token_of_its_own()
    _let_a_catch_lead_to_its_own_state()
    _name_a_failed_evaluation()
    _let_a_branch_fail_by_any_name()


def _give_each_attempt_a_task_token_of_its_own() -> None:
    """AWS: each attempt of a task has a token of its own. LocalStack: a retry has the first's."""
    callback = state_task_service_callback.StateTaskServiceCallback
    evaluate = callback._evaluate_with_timeout

    def with_fresh_token(self: Any, env: Any) -> None:
        context = env.states.context_object
        if self._is_integration_pattern() and context.context_object_data.get("Task"):
            env.callback_pool_manager.add(context.update_task_token())
        evaluate(self, env)

    callback._evaluate_with_timeout = with_fresh_token


class _Caught(str):
    """The name of the state that a Catch leads to."""

    __slots__ = ()


def _let_a_catch_lead_to_its_own_state() -> None:
    """AWS: a Catch may name the state it belongs to. LocalStack: takes that for no Catch at all."""
    catch, set_next = CatcherDecl._eval_body, CommonStateField._set_next
    run = CommonStateField._eval_body

    def remember(self: Any, env: Any) -> None:
        catch(self, env)
        if isinstance(env.stack[-1], CatcherOutcomeCaught):
            env.next_state_name = _Caught(env.next_state_name)

    def respect(self: Any, env: Any) -> None:
        if not isinstance(env.next_state_name, _Caught):
            set_next(self, env)

    def forget(self: Any, env: Any) -> None:
        env.next_state_name = str(env.next_state_name)
        run(self, env)

    CatcherDecl._eval_body = remember
    CommonStateField._set_next = respect
    CommonStateField._eval_body = forget


def _name_a_failed_evaluation() -> None:
    """AWS: an expression that fails is States.QueryEvaluationError. LocalStack: States.Runtime."""
    evaluate = StringJSONata._eval_body

    def evaluate_or_fail_by_name(self: Any, env: Any) -> None:
        try:
            evaluate(self, env)
        except JSONataException as error:
            name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
            details = EvaluationFailedEventDetails(error=name.error_name, cause=error.details)
            failure = FailureEvent(
                env=env,
                error_name=name,
                event_type=HistoryEventType.EvaluationFailed,
                event_details=EventDetails(evaluationFailedEventDetails=details),
            )
            raise FailureEventException(failure) from error

    StringJSONata._eval_body = evaluate_or_fail_by_name


class _AnyName(ErrorName):  # type: ignore[misc]  # LocalStack is untyped here
    """The name of an error, also one that begins with `States.`."""


def _let_a_branch_fail_by_any_name() -> None:
    """AWS: a Parallel fails by the error of its branch, which a Catch may handle.

    LocalStack: where that error begins with `States.`, the execution fails with States.Runtime.
    """
    branches_decl.CustomErrorName = _AnyName
