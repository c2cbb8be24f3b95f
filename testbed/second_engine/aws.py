"""The embedded AWS with another interpreter of state machines."""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import boto3
import botocore.config

from testbed.localaws import LocalAws
from testbed.localaws.environment import client_settings
from testbed.second_engine.child import Child
from testbed.second_engine.places import NODE_MODULES, PYTHON

_STEP_FUNCTIONS: Final = "stepfunctions"


class AwsWithSecondInterpreter(LocalAws):
    """The embedded AWS, except that LocalStack runs the state machines.

    What is deployed is deployed into the embedded AWS; the interpreter gets the definitions from
    there, under the same ARNs. Its tasks call the functions and tables of the embedded AWS, its
    status events go to that EventBridge, and the functions there call the interpreter.
    """

    def __init__(
        self, *, without: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self._interpreter_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        told = {"AWS_ENDPOINT_URL_SFN": self._interpreter_url}
        super().__init__(without=without, settings={**(settings or {}), **told})

    def __enter__(self) -> Self:
        """Start both."""
        with contextlib.ExitStack() as stack, self._listener:
            super().__enter__()
            stack.callback(super().__exit__, None, None, None)
            descriptor = self._listener.fileno()
            command = [
                str(PYTHON),
                "-m",
                "testbed.second_engine.interpreter",
                str(descriptor),
                self.endpoint_url,
                str(NODE_MODULES),
            ]
            self._interpreter = stack.enter_context(
                Child(
                    command,
                    url=f"{self._interpreter_url}/_localstack/health",
                    settings={
                        **client_settings(self._interpreter_url, "test"),
                        "LOCALAWS_ACCESS_KEY": self.access_key,
                    },
                    sockets=[descriptor],
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End both."""
        self._stack.close()

    def client(self, service: str, **config: Any) -> Any:
        """A client of the interpreter for Step Functions, of the embedded AWS for all else."""
        client = super().client(service, **config)
        if service != _STEP_FUNCTIONS:
            return client
        session = boto3.session.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        return session.client(
            _STEP_FUNCTIONS,
            endpoint_url=self._interpreter_url,
            config=botocore.config.Config(inject_host_prefix=False, proxies={}).merge(
                botocore.config.Config(**config)
            ),
        )

    def deploy(
        self,
        *,
        stacks: Sequence[str],
        app: str | Path = "python3 app.py",
        context: Mapping[str, str] | None = None,
    ) -> dict[str, dict[str, str]]:
        """Deploy, and hand the deployed state machines to the interpreter."""
        outputs = super().deploy(stacks=stacks, app=app, context=context)
        deployed, interpreter = super().client(_STEP_FUNCTIONS), self.client(_STEP_FUNCTIONS)
        for page in deployed.get_paginator("list_state_machines").paginate():
            for machine in page["stateMachines"]:
                arn = machine["stateMachineArn"]
                found = deployed.describe_state_machine(stateMachineArn=arn)
                fields = ("name", "definition", "roleArn", "type")
                made = interpreter.create_state_machine(**{name: found[name] for name in fields})
                if made["stateMachineArn"] != arn:
                    raise RuntimeError(f"{made['stateMachineArn']} was to be {arn}")
        return outputs
