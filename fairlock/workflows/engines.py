"""Both workflow engines behind one port: the ARN or the token says which one is meant."""

from __future__ import annotations

from dataclasses import dataclass

from fairlock.errors import LockLost
from fairlock.protocol.model import Grant, NotHeld, Released
from fairlock.wire.executions import callback_id_in, is_durable
from fairlock.workflows.durable_functions import DurableFunctions
from fairlock.workflows.engine import Delivery, Execution
from fairlock.workflows.step_functions import StepFunctions


@dataclass(frozen=True, slots=True)
class WorkflowEngines:
    """A `WorkflowEngine` for Standard workflows and for durable functions."""

    step_functions: StepFunctions
    durable_functions: DurableFunctions

    def wake_waiter(self, task_token: str, grant: Grant) -> Delivery:
        """Tells a waiting execution that it holds the lock now."""
        callback_id = callback_id_in(task_token)
        if callback_id is None:
            return self.step_functions.wake_waiter(task_token, grant)
        return self.durable_functions.wake_waiter(callback_id, grant)

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Ends a heartbeat state; only Standard workflows have them."""
        return self.step_functions.end_heartbeat(task_token, end)

    def describe(self, execution_arn: str) -> Execution:
        """Tells whether an execution still runs."""
        if is_durable(execution_arn):
            return self.durable_functions.describe(execution_arn)
        return self.step_functions.describe(execution_arn)
