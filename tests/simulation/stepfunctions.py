"""Step Functions: Standard workflows, their quotas, task tokens, ends and redrives.

Sources, all of the Step Functions developer guide: "Service quotas" (see `QUOTAS`; above the
state transitions of an account executions go on later, above a bucket a call is refused with
ThrottlingException), "Wait for a Callback with Task Token" (a token that has timed out is refused),
"Restarting state machine executions with redrive" (same ARN, a count, the states that did not
succeed run again), "Automating Step Functions event delivery with EventBridge" (status events, best
effort).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Final
from uuid import UUID

from tests.simulation.engine import Bucket, Engine, Quota
from tests.simulation.functions import PLACE, Done, Json
from tests.simulation.states import Execution, Flow
from tests.support.faulty_table import refusal

_ENTRY_SECONDS: Final = 0.02
_REQUEST_SECONDS: Final = 0.012
_MOST_SENDINGS: Final = 3


class StepFunctions:
    """The service, in one account and region.

    Attributes:
        lost_pushes: the share of answers to task tokens whose sending fails for good.
        executions: by their ARNs; those that have succeeded are forgotten.
        transitions: of states, which are what is paid.
    """

    def __init__(
        self,
        engine: Engine,
        quotas: dict[str, Quota],
        functions: Callable[[str, Json, Done], object],
        publish: Callable[[Json], object],
        lost_pushes: float = 0.0,
    ) -> None:
        self.engine, self.functions, self._publish = engine, functions, publish
        self.buckets = {name: Bucket(engine, quota) for name, quota in quotas.items()}
        self.executions: dict[str, Execution] = {}
        self.transitions = 0
        self.lost_pushes = lost_pushes
        self._tokens: dict[str, tuple[Flow, int]] = {}
        self._made = 0
        bits = engine.random.getrandbits
        self.built_in: Json = {
            "$uuid": lambda: str(UUID(int=bits(128), version=4)),
            "$millis": lambda: round(engine.now * 1000),
        }

    def start(
        self, machine_name: str, machine: Json, name: str, given: Json, watcher: object
    ) -> Execution:
        """Starts an execution, as soon as the quota lets its caller."""
        arn = f"arn:aws:states:{PLACE}:execution:{machine_name.replace(' ', '-')}:{name}"
        made = Execution(self, arn, machine, watcher)
        self.executions[arn] = made
        delay = self.buckets["StartExecution"].reserve()
        self.engine.after(delay, made.root.begin, given)
        return made

    def transition(self) -> float:
        """Seconds until a state is entered: more if the account has used up its transitions."""
        self.transitions += 1
        return _ENTRY_SECONDS + self.buckets["StateTransition"].reserve()

    def token(self, flow: Flow) -> str:
        """A task token for the state in which a flow is."""
        self._made += 1
        token = f"AQC{self._made:010d}"
        self._tokens[token] = flow, flow.number
        return token

    def report(self, execution: Execution) -> None:
        """Tells of an end. Succeeded executions are of no interest to the reaper's rule."""
        assert execution.stopped_at is not None
        if execution.status == "SUCCEEDED":
            del self.executions[execution.arn]
            return
        self._publish(
            {
                "executionArn": execution.arn,
                "status": execution.status,
                "redriveCount": execution.redrives,
                "stopDate": round(execution.stopped_at * 1000),
            }
        )

    def describe(self, arn: str) -> Json:
        execution = self.executions.get(arn)
        if execution is None:
            return {"status": "SUCCEEDED", "redriveCount": 0}
        stopped = execution.stopped_at
        told = {"stopDate": datetime.fromtimestamp(stopped, UTC)} if stopped else {}
        return {"status": execution.status, "redriveCount": execution.redrives, **told}

    def complete(self, token: str, result: Json | None, error: str, cause: str) -> Json:
        """Gives a task its result, or its error if that is none.

        Raises:
            ClientError: no such task waits.
        """
        flow, number = self._tokens.get(token, (None, 0))
        if flow is None:
            raise refusal("TaskDoesNotExist")
        if flow.number != number or flow.execution.status != "RUNNING":
            raise refusal("TaskTimedOut")
        del self._tokens[token]
        if result is None:
            flow.later(_ENTRY_SECONDS, flow.fail, error, cause)
        else:
            flow.later(_ENTRY_SECONDS, flow.complete, result)
        return {}


class StepFunctionsClient:
    """A client of boto3 for Step Functions, with botocore's repeats of throttled calls."""

    def __init__(self, service: StepFunctions) -> None:
        self._service, self._engine = service, service.engine
        self.meta = SimpleNamespace(region_name="us-east-1")
        # Never raised: executions are not forgotten.
        self.exceptions = SimpleNamespace(ExecutionDoesNotExist=LookupError)

    def describe_execution(self, *, executionArn: str, includedData: str) -> Json:  # noqa: N803 - boto3's names
        assert includedData == "METADATA_ONLY"
        return self._call("DescribeExecution", lambda: self._service.describe(executionArn))

    def send_task_success(self, *, taskToken: str, output: str) -> Json:  # noqa: N803 - boto3's names
        result = json.loads(output)
        return self._call("SendTask", lambda: self._service.complete(taskToken, result, "", ""))

    def send_task_failure(self, *, taskToken: str, error: str, cause: str) -> Json:  # noqa: N803 - boto3's names
        return self._call("SendTask", lambda: self._service.complete(taskToken, None, error, cause))

    def _call(self, api: str, do: Callable[[], Json]) -> Json:
        engine = self._engine
        for repeats in range(_MOST_SENDINGS):
            engine.wait(_REQUEST_SECONDS)
            if api == "SendTask" and engine.random.random() < self._service.lost_pushes:
                raise refusal("AccessDeniedException")
            if self._service.buckets[api].take():
                return do()
            if repeats + 1 < _MOST_SENDINGS:
                engine.wait(engine.random.random() * 2.0**repeats)
        raise refusal("ThrottlingException")
