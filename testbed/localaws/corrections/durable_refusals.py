"""Lambda refuses what may not be asked of a durable function.

AWS (Lambda developer guide, "Invoking Lambda durable functions" and "Encryption for durable
execution state"; API reference, GetDurableExecution): a durable function is invoked by a
version, an alias or $LATEST, never by its bare name; and not synchronously if its execution may
take longer than 15 minutes. A principal that reads an execution's data, or completes a callback,
needs kms:Decrypt on the key of the function's DurableConfig. GetDurableExecution reads the data
unless IncludeExecutionData is false.

Emulator: invokes $LATEST for the bare name, however long the execution may take, knows no
IncludeExecutionData, and asks for no permission on a key.

This: refuses both invocations with AWS's errors, and with the setting AUTH asks for kms:Decrypt.
"""

import contextvars
import json
from http import HTTPStatus
from typing import Any

import ministack.app
from ministack.core.iam_evaluator import enforce
from ministack.core.responses import error_response_json, get_region
from ministack.services import lambda_durable, lambda_svc

_MOST_SYNCHRONOUS_SECONDS = 900
_with_data: contextvars.ContextVar[bool] = contextvars.ContextVar("with_data", default=True)
_DATA = ("InputPayload", "Result", "Error")
_UNQUALIFIED = "You cannot invoke a durable function using an unqualified ARN."
_TOO_LONG = (
    "You cannot synchronously invoke a durable function with an executionTimeout greater than"
    " 15 minutes."
)


def apply() -> None:
    """Ask before an invocation, and before data are read or a callback is completed."""
    _wrap_invoke()
    _wrap_route()
    _wrap_get_execution()
    _wrap_resolve_callback()


def _wrap_invoke() -> None:
    original = lambda_svc._invoke

    async def invoke(
        name: str, event: Any, headers: Any, path_qualifier: Any = None, query_params: Any = None
    ) -> Any:
        config = ((lambda_svc._functions.get(name) or {}).get("config") or {}).get("DurableConfig")
        if config:
            qualifier = path_qualifier or lambda_svc._qp_first(query_params or {}, "Qualifier")
            lowered = {key.lower(): value for key, value in headers.items()}
            reason = _objection(config, qualifier, lowered.get("x-amz-invocation-type"))
            if reason is not None:
                return error_response_json("InvalidParameterValueException", reason, 400)
        return await original(name, event, headers, path_qualifier, query_params)

    lambda_svc._invoke = invoke


def _objection(config: Any, qualifier: str | None, kind: str | None) -> str | None:
    if not qualifier:
        return _UNQUALIFIED
    seconds = int(config.get("ExecutionTimeout") or 0)
    if kind in {None, "RequestResponse"} and seconds > _MOST_SYNCHRONOUS_SECONDS:
        return _TOO_LONG
    return None


def _wrap_route() -> None:
    """The handler of GetDurableExecution is not told the parameters of the query."""
    original = lambda_durable.try_route

    def try_route(method: str, path: str, body: bytes, query_params: Any, **more: Any) -> Any:
        asked = lambda_svc._qp_first(query_params or {}, "IncludeExecutionData")
        token = _with_data.set(str(asked).lower() != "false")
        try:
            return original(method, path, body, query_params, **more)
        finally:
            _with_data.reset(token)

    lambda_durable.try_route = try_route


def _wrap_get_execution() -> None:
    original = lambda_durable.handle_get_execution

    def handle_get_execution(arn_path: str) -> Any:
        status, headers, body = original(arn_path)
        if status != HTTPStatus.OK:
            return status, headers, body
        if not _with_data.get():
            answer = {key: each for key, each in json.loads(body).items() if key not in _DATA}
            return status, headers, json.dumps(answer).encode()
        arn = lambda_durable._parse_execution_arn(arn_path)
        return _key_refusal(lambda_durable._executions[arn]) or (status, headers, body)

    lambda_durable.handle_get_execution = handle_get_execution


def _wrap_resolve_callback() -> None:
    """All three calls that complete a callback begin with it."""
    original = lambda_durable._resolve_callback

    def resolve(callback_id: str) -> Any:
        record, operation, error = original(callback_id)
        refusal = None if error is not None else _key_refusal(record)
        return (record, operation, error) if refusal is None else (None, None, refusal)

    lambda_durable._resolve_callback = resolve


def _key_refusal(record: dict[str, Any]) -> Any:
    """Lambda's error for a caller who may not decrypt with the function's key; None if it may."""
    name = record["FunctionArn"].split(":function:")[1].split(":")[0]
    config = (lambda_svc._functions.get(name) or {}).get("config") or {}
    key = (config.get("DurableConfig") or {}).get("KMSKeyArn")
    caller = lambda_svc._request_access_key.get()
    if (
        not (key and ministack.app.AUTH)
        or enforce(caller, "kms:Decrypt", "kms", get_region(), resource_arn=key) is None
    ):
        return None
    reason = f"Lambda was unable to decrypt the data with {key}: the caller lacks kms:Decrypt"
    return error_response_json("KMSAccessDeniedException", reason, 502)
