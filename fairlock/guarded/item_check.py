"""Checks the items of an application before they are sent, as boto3 does by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ParamValidationError
from botocore.validate import ParamValidator

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


def require_well_formed(client: DynamoDBClient, items: Sequence[TransactWriteItemTypeDef]) -> None:
    """Raises boto3's error for items that are not what the client's operation takes.

    Needed for the clients of `LockClient`, which send without that check.

    Raises:
        ParamValidationError: names what is wrong.
    """
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if model is None:
        return  # It stands in for a client, in a test.
    shape = model.operation_model("TransactWriteItems").input_shape
    report = ParamValidator().validate({"TransactItems": list(items)}, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())
