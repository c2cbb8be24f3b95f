"""Other tables that may be of the same service: made when its stack was deployed anew.

CloudFormation names a table after its stack and construct, and ends the name with random letters.
A table that was retained when its stack was destroyed differs from the new one in these only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fairlock.protocol.schema import PARTITION_KEY

_MOST_TABLES: Final = 2_500
"""An account has no more by default."""


def other_tables(dynamodb: Any, table: Mapping[str, Any]) -> list[str]:  # noqa: ANN401 - a client of boto3's
    """The names of other lock tables that are called like this one.

    Raises:
        botocore.exceptions.ClientError: no permission to list tables.
    """
    own = table["TableName"]
    start, dash, ending = own.rpartition("-")
    if not dash or not ending.isalnum():
        return []
    like = [name for name in _names(dynamodb) if name != own and name.startswith(f"{start}-")]
    return [name for name in like if _is_lock_table(dynamodb, name)]


def _names(dynamodb: Any) -> Iterator[str]:  # noqa: ANN401 - same
    request: dict[str, Any] = {}
    seen = 0
    while seen < _MOST_TABLES:
        answer = dynamodb.list_tables(**request)
        seen += len(answer["TableNames"])
        yield from answer["TableNames"]
        if "LastEvaluatedTableName" not in answer:
            return
        request = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}


def _is_lock_table(dynamodb: Any, name: str) -> bool:  # noqa: ANN401 - same
    found = dynamodb.describe_table(TableName=name)["Table"]["KeySchema"]
    return bool(found[0]["AttributeName"] == PARTITION_KEY)
