"""The optimized Lambda task sends no payload of its own making and answers the version.

AWS (developer guide, "Invoke an AWS Lambda function with Step Functions"): the task sends Payload,
or nothing if there is none, to FunctionName and Qualifier; its result is
{ExecutedVersion, Payload, StatusCode} and the SDK's metadata.

Emulator: sends the whole arguments if there is no Payload, ignores Qualifier, and the result has
no ExecutedVersion.

This: does it by the book, without the metadata.
"""

from typing import Any

from ministack.services import lambda_svc, stepfunctions

_RESOURCE = "arn:aws:states:::lambda:invoke"


def apply() -> None:
    """Replace the optimized integration; everything else stays."""
    original = stepfunctions._invoke_resource

    def invoke_resource(resource: str, arguments: Any) -> Any:
        if resource != _RESOURCE:
            return original(resource, arguments)
        name = stepfunctions._resolve_lambda_function_ref(arguments["FunctionName"], optimized=True)
        qualifier = arguments.get("Qualifier")
        reference = f"{name}:{qualifier}" if qualifier else name
        payload = stepfunctions._call_lambda(reference, arguments.get("Payload", {}))
        return {"ExecutedVersion": _version(reference), "Payload": payload, "StatusCode": 200}

    stepfunctions._invoke_resource = invoke_resource


def _version(reference: str) -> str:
    _, config, _ = lambda_svc._get_func_record_for_ref(reference)
    return str((config or {}).get("Version", "$LATEST"))
