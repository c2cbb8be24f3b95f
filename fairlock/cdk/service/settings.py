"""Checks the settings of a service: what would fail at deployment, or when a function is imported.

Each check raises `InvalidRequest` with the name of the argument and its rule.
"""

from __future__ import annotations

import re
from typing import Final

from aws_cdk import RemovalPolicy, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from fairlock.errors import InvalidRequest

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEAST_MEMORY_MIB: Final = 128
MOST_MEMORY_MIB: Final = 10_240
_TABLE_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_REMOVAL_POLICIES: Final = (
    RemovalPolicy.RETAIN,
    RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    RemovalPolicy.DESTROY,
)


def check_functions(
    *,
    log_level: object,
    log_retention: object,
    memory_size_mib: object,
    tracing: object,
    architecture: object,
) -> None:
    """Checks the settings of the functions."""
    if log_level not in LOG_LEVELS:
        _refuse("log_level", f"must be one of {', '.join(LOG_LEVELS)}", log_level)
    if not isinstance(log_retention, logs.RetentionDays):
        _refuse("log_retention", "must be a member of aws_logs.RetentionDays", log_retention)
    whole = isinstance(memory_size_mib, int) and not isinstance(memory_size_mib, bool)
    if not (whole and LEAST_MEMORY_MIB <= memory_size_mib <= MOST_MEMORY_MIB):  # type: ignore[operator]  # an int by then
        rule = f"must be a whole number from {LEAST_MEMORY_MIB} to {MOST_MEMORY_MIB}"
        _refuse("memory_size_mib", rule, memory_size_mib)
    if tracing is not None and not isinstance(tracing, bool):
        _refuse("tracing", "must be True, False, or None for the default", tracing)
    if architecture is not None and not isinstance(architecture, lambda_.Architecture):
        rule = "must be a member of aws_lambda.Architecture, or None for the default"
        _refuse("architecture", rule, architecture)


def check_table(
    *,
    table_name: object,
    removal_policy: object,
    deletion_protection: object,
    encryption_key: object,
) -> None:
    """Checks the settings of a new table."""
    if table_name is not None and not _is_table_name(table_name):
        rule = "must be 3 to 255 letters, digits, hyphens, underscores and dots"
        _refuse("table_name", rule, table_name)
    if removal_policy not in _REMOVAL_POLICIES:
        rule = "must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY of aws_cdk.RemovalPolicy"
        _refuse("removal_policy", rule, removal_policy)
    if not isinstance(deletion_protection, bool):
        _refuse("deletion_protection", "must be True or False", deletion_protection)
    if encryption_key is not None and not hasattr(encryption_key, "key_arn"):
        _refuse("encryption_key", "must be an aws_kms.IKey", encryption_key)


def check_existing_table(
    table: dynamodb.ITable,
    *,
    table_name: str | None,
    deletion_protection: bool,
    encryption_key: kms.IKey | None,
) -> None:
    """Checks that nothing is set of a table that exists already."""
    if not hasattr(table, "table_arn"):
        _refuse("table", "must be an aws_dynamodb.ITable", table)
    for name, given in (
        ("table_name", table_name is not None),
        ("deletion_protection", deletion_protection),
        ("encryption_key", encryption_key is not None),
    ):
        if given:
            rule = "must be left out with table=…, which has its own"
            _refuse(name, rule, True)  # noqa: FBT003 - that it is given


def _is_table_name(name: object) -> bool:
    if not isinstance(name, str):
        return False
    return Token.is_unresolved(name) or _TABLE_NAME.fullmatch(name) is not None


def _refuse(field: str, rule: str, value: object) -> None:
    raise InvalidRequest(field=field, rule=rule, value=value)
