"""Invokes the functions of the lock service, and tells an answer from an error."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.errors import (
    FairlockError,
    InvalidRequest,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.names import ACQUIRE_FUNCTION_VARIABLE, RELEASE_FUNCTION_VARIABLE
from fairlock.wire.answers import invalid_request_text, read_invalid_request

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


def text_of(error: Exception) -> str:
    """The text from which `error_named` makes the same error again."""
    return invalid_request_text(error) if isinstance(error, InvalidRequest) else str(error)


def error_named(kind: str, message: str) -> FairlockError:
    """The error of this class name and text; any other name is an unknown outcome."""
    match kind:
        case "InvalidRequest":
            return read_invalid_request(message)
        case "LockStoreMisconfigured" | "LockItemMalformed":
            return LockStoreMisconfigured(message, code=kind)
        case "LockStoreUnavailable":
            return LockStoreUnavailable(message)
        case _:
            return LockStoreUnavailable(f"{kind}: {message}")


Json = dict[str, Any]

_CONFIG: Final = Config(
    connect_timeout=2,
    # Longer than the functions' own timeout: no repeated call overtakes the one before it.
    read_timeout=25,
    # A repeat of a release may be answered "not held": the step must know that it is a repeat.
    retries={"total_max_attempts": 1},
)
_HOPELESS: Final = frozenset(
    {"AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException"}
)


class LockRequests(Protocol):
    """What `hold` asks of a lock service; requests and answers are those of its functions."""

    def acquire(self, request: Json) -> Json:
        """Asks for the lock, or for a place in its queue."""

    def release(self, request: Json) -> Json:
        """Gives the lock back, or leaves the queue."""


@dataclass(frozen=True, slots=True)
class LockFunctions:
    """The functions of one lock service, for a durable function that uses several services.

    Args:
        acquire_function: name or ARN of the service's function `acquire`.
        release_function: same of `release`.
        client: a Lambda client; None makes one.

    Raises:
        InvalidRequest: an argument breaks its rule, or the service refused a request.
        LockStoreUnavailable: the outcome of a call is unknown.
        LockStoreMisconfigured: the function does not exist, or this one may not invoke it.
    """

    acquire_function: str
    release_function: str
    client: LambdaClient | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Checks all rules."""
        for name in ("acquire_function", "release_function"):
            if not isinstance(given := getattr(self, name), str) or not given:
                rule = "must be the name or ARN of a function of the lock service"
                raise InvalidRequest(field=name, rule=rule, value=given)
        if self.client is not None and not hasattr(self.client, "invoke"):
            rule = 'must be a client, as boto3.client("lambda") makes it, or None'
            raise InvalidRequest(field="client", rule=rule, value=self.client)

    @classmethod
    def from_environment(cls) -> LockFunctions:
        """The service that `LockService.grant_durable` has written into the environment."""
        try:
            return cls(os.environ[ACQUIRE_FUNCTION_VARIABLE], os.environ[RELEASE_FUNCTION_VARIABLE])
        except KeyError as missing:
            name = missing.args[0]
            raise LockStoreMisconfigured(
                f"the environment variable {name} is missing: call grant_durable(function) of the "
                "LockService where the function is declared, or pass service=LockFunctions(…)",
                code="MissingVariable",
            ) from None

    def acquire(self, request: Json) -> Json:
        """Invokes the function `acquire`."""
        return self._invoke(self.acquire_function, request)

    def release(self, request: Json) -> Json:
        """Invokes the function `release`."""
        return self._invoke(self.release_function, request)

    def _invoke(self, function: str, request: Json) -> Json:
        client = self.client or _default_client()
        try:
            response = client.invoke(FunctionName=function, Payload=json.dumps(request).encode())
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _HOPELESS:
                raise LockStoreMisconfigured(f"{function}: {error}", code=code) from None
            raise LockStoreUnavailable(f"{function}: {error}") from error
        except BotoCoreError as error:
            raise LockStoreUnavailable(f"{function}: {error}") from error
        answer = json.loads(response["Payload"].read())
        if "FunctionError" in response:
            raise error_named(str(answer.get("errorType")), str(answer.get("errorMessage")))
        return dict(answer)


@cache
def _default_client() -> LambdaClient:
    return boto3.client("lambda", config=_CONFIG)
