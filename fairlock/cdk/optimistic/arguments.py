"""The arguments of an update, checked at synth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from aws_cdk import Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.workflow_variable import is_jsonata
from fairlock.errors import InvalidRequest
from fairlock.protocol.versions import write_id_attribute

_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
_MOST_RETRIES: Final = 100
_KEY_TYPES: Final = frozenset({"S", "N", "B"})


def check_update(
    table: dynamodb.ITable,
    key: Mapping[str, Mapping[str, object]],
    version_attribute: str,
    retries: int,
) -> None:
    """Checks the table, the key, the attribute of the version and the number of retries.

    Raises:
        InvalidRequest: names the field and the rule.
    """
    if not hasattr(table, "table_name"):
        rule = "must be a table of aws_dynamodb, such as Table.from_table_name(…)"
        raise InvalidRequest(field="table", rule=rule, value=table)
    _check_key(key)
    if not isinstance(version_attribute, str) or not _ATTRIBUTE.fullmatch(version_attribute):
        rule = "must be a name of letters, digits and _.- that does not begin with a digit"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
    if {version_attribute, write_id_attribute(version_attribute)} & set(key):
        rule = "must not be a part of the key"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise InvalidRequest(field="retries", rule="must be a whole number", value=retries)
    if not 0 <= retries <= _MOST_RETRIES:
        rule = f"must be from 0, for a single try, to {_MOST_RETRIES}"
        raise InvalidRequest(field="retries", rule=rule, value=retries)


def _check_key(key: object) -> None:
    if not isinstance(key, Mapping) or not key:
        rule = "must be the item's whole primary key, like {'account': {'S': 'anna'}}"
        raise InvalidRequest(field="key", rule=rule, value=key)
    for name, value in key.items():
        if not isinstance(value, Mapping) or len(value) != 1 or set(value) - _KEY_TYPES:
            rule = "must map each attribute to a value in DynamoDB's form, like {'S': 'text'}"
            raise InvalidRequest(field="key", rule=rule, value={name: value})
        [text] = value.values()
        if not isinstance(text, str) or not text:
            rule = "must have texts that are not empty as its values, also of numbers: {'N': '7'}"
            raise InvalidRequest(field="key", rule=rule, value={name: value})
        if not is_jsonata(text) and _looks_evaluated(text):
            rule = (
                "must not be a path, nor contain one or JSONata within a literal: "
                "write JSONata as a whole, '{% 'customer/' & $states.input.id %}'"
            )
            raise InvalidRequest(field="key", rule=rule, value={name: value})


def _looks_evaluated(text: str) -> bool:
    """Whether somebody means it to be evaluated, which Step Functions would not do."""
    if Token.is_unresolved(text):
        return sfn.JsonPath.is_encoded_json_path(text)
    return any(part in text for part in ("{%", "%}", "$.", "$states"))
