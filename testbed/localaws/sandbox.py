"""A Lambda execution environment for Python, run by the emulator as a script, never imported.

It speaks the emulator's protocol: one JSON line in for the start, then one line in and one line
out per invocation. Beside the emulator's own worker it reports what a handler raised as AWS's
runtime does (class name, message, stack trace), goes on after that, and marks the end of an
invocation's log when LOCALAWS_LOG_END names a mark. It needs nothing but the standard library.
"""

import importlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

Json = dict[str, Any]
Handler = Callable[[Any, "Context"], Any]

FAILURE_KEY = "localaws:failure"
DURABLE_VARIABLES = {
    "AWS_LAMBDA_DURABLE_EXECUTION_ARN",
    "AWS_LAMBDA_DURABLE_CHECKPOINT_TOKEN",
    "AWS_LAMBDA_DURABLE_EXECUTION_NAME",
}


class Context:
    """The handler's second argument."""

    identity = None
    client_context = None

    def __init__(self, start: Json, invocation: Json) -> None:
        self.function_name = start["function_name"]
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        self.memory_limit_in_mb = start["memory"]
        self.invoked_function_arn = invocation.get("invoked_function_arn") or start["arn"]
        self.aws_request_id = invocation.get("request_id", "")
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.log_stream_name = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", "")
        self._deadline = time.monotonic() + invocation.get("timeout_ms", 3000) / 1000

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the sandbox is ended."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def main() -> None:
    """Load the handler, then answer one invocation after the other."""
    answers = _reserve_standard_output()
    start = json.loads(sys.stdin.readline())
    handler, failure = _load(start)
    _answer(answers, {"status": "ready", "cold": True})
    for line in sys.stdin:
        message = json.loads(line)
        invocation = message.get("ctx") or {}
        _set_invocation_variables(invocation)
        context = Context(start, invocation)
        if handler is not None:
            answer = _invoke(handler, message["event"], context)
        else:
            answer = _failed(failure or {}, context)
        _end_log()
        answers.write(answer + "\n")
        answers.flush()
        if handler is None:
            sys.exit(1)  # a failed start is tried again by the next invocation, as on AWS


def _reserve_standard_output() -> TextIO:
    """Keep the real standard output for answers; what handlers print becomes log."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(levelname)s]\t%(asctime)s\t%(message)s"))
    logging.getLogger().addHandler(handler)
    return answers


def _load(start: Json) -> tuple[Handler, None] | tuple[None, Json]:
    _hide_checkout()
    os.environ.update(start.get("env") or {})
    sys.path.insert(0, start["code_dir"])
    for layer in filter(None, os.environ.get("_LAMBDA_LAYERS_DIRS", "").split(os.pathsep)):
        sys.path.insert(1, f"{layer}/python")
    try:
        return getattr(importlib.import_module(start["module"]), start["handler"]), None
    except ImportError as error:
        text = f"Unable to import module '{start['module']}': {error}"
        return None, _describe("Runtime.ImportModuleError", text)
    except AttributeError:
        text = f"Handler '{start['handler']}' missing on module '{start['module']}'"
        return None, _describe("Runtime.HandlerNotFound", text)
    except Exception as error:  # noqa: BLE001 - reported, whatever it is
        return None, _describe(type(error).__name__, str(error), error)


def _hide_checkout() -> None:
    """Make modules that exist in the checkout but not in the deployed asset stay missing."""
    checkout = os.environ.pop("LOCALAWS_CHECKOUT", None)
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != checkout]


def _invoke(handler: Handler, event: object, context: Context) -> str:
    try:
        result = handler(event, context)
    except Exception as error:  # noqa: BLE001 - reported, whatever it is
        traceback.print_exc()
        return _failed(_describe(type(error).__name__, str(error), error), context)
    try:
        return json.dumps({"status": "ok", "result": result})
    except (TypeError, ValueError) as error:
        text = f"Unable to marshal response: {error}"
        return _failed(_describe("Runtime.MarshalError", text), context)


def _describe(name: str, message: str, error: Exception | None = None) -> Json:
    frames = traceback.format_tb(error.__traceback__)[1:] if error is not None else []
    return {"errorMessage": message, "errorType": name, "stackTrace": frames}


def _failed(failure: Json, context: Context) -> str:
    failure = {**failure, "requestId": context.aws_request_id}
    return json.dumps({"status": "ok", "result": {FAILURE_KEY: failure}})


def _answer(answers: TextIO, message: Json) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _end_log() -> None:
    mark = os.environ.get("LOCALAWS_LOG_END")
    if mark:
        sys.stderr.write(f"\n{mark}\n")
        sys.stderr.flush()


def _set_invocation_variables(invocation: Json) -> None:
    durable = invocation.get("durable") or {}
    values = {
        "_X_AMZN_TRACE_ID": invocation.get("trace_id"),
        **{name: durable.get(name) for name in DURABLE_VARIABLES},
    }
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


if __name__ == "__main__":
    main()
