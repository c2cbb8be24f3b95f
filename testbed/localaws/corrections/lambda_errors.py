"""A Lambda function's failure keeps its name, and does not cost the execution environment.

AWS: the runtime reports an exception with its class name as errorType (Lambda developer guide,
"Python function errors"); Step Functions takes that as the error's name, which Catch and Retry
match ("Handling errors in Step Functions workflows"). The environment serves the next invocation.
A module that cannot be imported is Runtime.ImportModuleError, a process that ends is
Runtime.ExitError, a result that is not JSON is Runtime.MarshalError, and a function that outlasts
its timeout Sandbox.Timedout. Step Functions calls a throttled invocation
Lambda.TooManyRequestsException.

Emulator: every exception is Runtime.HandlerError and ends the worker process.

This: workers run testbed/localaws/sandbox.py, and what it reports becomes the invocation's error.
"""

import json
from pathlib import Path
from typing import Any

from ministack.core import lambda_runtime
from ministack.services import lambda_svc, stepfunctions

from testbed.localaws import sandbox

_PROCESS_DIED = "Worker process died"


def apply() -> None:
    """Run Python functions in our sandbox, and pass on the failures it reports."""
    lambda_runtime._PYTHON_WORKER_SCRIPT = Path(sandbox.__file__).read_text()
    _wrap_execute()
    _wrap_call_lambda()


def _wrap_execute() -> None:
    original = lambda_svc._execute_function_warm

    def execute(function: dict[str, Any], event: Any, request_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = original(function, event, request_id)
        failure = _failure(answer.get("body"), request_id)
        if failure is None:
            return answer
        return {"body": failure, "error": True, "log": answer.get("log", "")}

    lambda_svc._execute_function_warm = execute


def _failure(body: Any, request_id: str) -> dict[str, Any] | None:
    if not isinstance(body, dict):
        return None
    if set(body) == {sandbox.FAILURE_KEY}:
        reported: dict[str, Any] = body[sandbox.FAILURE_KEY]
        return reported
    if body.get("errorMessage") == _PROCESS_DIED:
        text = f"RequestId: {request_id} Error: Runtime exited without providing a reason"
        return {"errorType": "Runtime.ExitError", "errorMessage": text}
    return None


def _wrap_call_lambda() -> None:
    original = stepfunctions._call_lambda

    def call_lambda(function: str, event: Any) -> Any:
        try:
            return original(function, event)
        except stepfunctions._ExecutionError as error:
            if error.error == "Lambda.Unknown" and "TooManyRequestsException" in error.cause:
                text = json.dumps({"errorMessage": error.cause})
                raise stepfunctions._ExecutionError(
                    "Lambda.TooManyRequestsException", text
                ) from None
            raise

    stepfunctions._call_lambda = call_lambda
