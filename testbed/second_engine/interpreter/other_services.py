"""All services but Step Functions are those of the embedded AWS: Lambda, DynamoDB, EventBridge."""

import os
from typing import Any

import boto3
from botocore.config import Config
from localstack.services.stepfunctions.asl.eval.event import logging
from localstack.services.stepfunctions.asl.utils import boto_client
from localstack.services.stepfunctions.backend import execution

_LONGEST_CALL_SECONDS = 900


class _Clients:
    """Stands for LocalStack's `connect_to`, and for what its calls return."""

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url
        self._session = boto3.session.Session(
            # Of the first engine, which serves no one else.
            aws_access_key_id=os.environ["LOCALAWS_ACCESS_KEY"],
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        self._clients: dict[str, Any] = {}

    def __call__(self, **_account_and_region: str) -> "_Clients":
        return self

    def with_assumed_role(self, **_role: object) -> "_Clients":
        return self

    def get_client(self, service: str) -> Any:
        if service not in self._clients:
            # The overloads of boto3-stubs want a literal service name.
            self._clients[service] = self._session.client(  # type: ignore[call-overload]
                service,
                endpoint_url=self._endpoint_url,
                config=Config(
                    parameter_validation=False,
                    retries={"total_max_attempts": 1},
                    read_timeout=_LONGEST_CALL_SECONDS,
                    max_pool_connections=64,
                ),
            )
        return self._clients[service]

    @property
    def events(self) -> Any:
        return self.get_client("events")


def answer_from(endpoint_url: str) -> None:
    """Let every task of the interpreter call the services at this endpoint."""
    clients = _Clients(endpoint_url)
    for module in (boto_client, execution, logging):
        module.connect_to = clients
