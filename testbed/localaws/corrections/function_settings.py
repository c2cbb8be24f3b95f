"""CloudFormation sets a function's dead-letter queue, reserved concurrency and DurableConfig.

AWS (CloudFormation template reference, AWS::Lambda::Function): DeadLetterConfig names the queue
or topic of failed asynchronous invocations; ReservedConcurrentExecutions bounds how many
invocations run at once; DurableConfig makes the function durable.

Emulator: drops them, and so none is ever used, although the Lambda service honours them.

This: they are written to the function after each create and update.
"""

from collections.abc import Mapping
from typing import Any

from ministack.services import lambda_svc

from testbed.localaws.corrections import _provisioner


def apply() -> None:
    """Set the dropped properties."""
    _provisioner.after_write("AWS::Lambda::Function", _set_properties)


def _set_properties(function_name: str, properties: Mapping[str, Any]) -> None:
    function = lambda_svc._functions[function_name]
    letters = properties.get("DeadLetterConfig")
    if letters:
        function["config"]["DeadLetterConfig"] = letters
    else:
        function["config"].pop("DeadLetterConfig", None)
    if "DurableConfig" in properties:
        durable = properties["DurableConfig"]
        config = {name: int(value) for name, value in durable.items() if str(value).isdecimal()}
        function["config"]["DurableConfig"] = {**durable, **config}
    reserved = properties.get("ReservedConcurrentExecutions")
    function["concurrency"] = None if reserved is None else int(reserved)
