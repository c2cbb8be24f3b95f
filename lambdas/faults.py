"""How a handler reports a request that breaks a rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from fairlock import errors
from fairlock.wire.answers import invalid_request_text

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

Handler = Callable[[dict[str, Any], "LambdaContext"], dict[str, Any]]


class InvalidRequest(errors.InvalidRequest):
    """The same error under the same name, which Lambda reports with field, rule and value."""

    def __init__(self, refused: errors.InvalidRequest) -> None:
        self.field, self.rule, self.value = refused.field, refused.rule, refused.value
        self.args = (invalid_request_text(refused),)


def reports_faults(handler: Handler) -> Handler:
    """Lets callers read what was wrong with a request as JSON, in the last line of the error."""

    @wraps(handler)
    def reporting(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        try:
            return handler(event, context)
        except errors.InvalidRequest as refused:
            raise InvalidRequest(refused) from refused

    return reporting
