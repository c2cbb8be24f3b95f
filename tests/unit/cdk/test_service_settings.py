"""Settings that would fail at deployment or at import are refused at synth, by name and rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Template

from fairlock.cdk import LockService
from fairlock.cdk.service.lock_service import check_functions, check_table
from fairlock.errors import InvalidRequest

FUNCTIONS: dict[str, Any] = {
    "log_level": "INFO",
    "log_retention": logs.RetentionDays.ONE_MONTH,
    "memory_size_mib": 256,
    "tracing": None,
    "architecture": None,
    "recursive_loop": None,
}
TABLE: dict[str, Any] = {
    "table_name": None,
    "removal_policy": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    "deletion_protection": False,
    "encryption_key": None,
}
LEVELS = "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"
MEMORY = "must be a whole number from 128 to 10240"
NAME = "must be 3 to 255 letters, digits, hyphens, underscores and dots"
POLICY = "must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY of aws_cdk.RemovalPolicy"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("log_level", "info", LEVELS),
        ("log_level", "TRACE", LEVELS),
        ("log_level", 20, LEVELS),
        ("log_level", None, LEVELS),
        ("log_retention", 30, "must be a member of aws_logs.RetentionDays"),
        ("memory_size_mib", 127, MEMORY),
        ("memory_size_mib", 10_241, MEMORY),
        ("memory_size_mib", "256", MEMORY),
        ("memory_size_mib", 256.0, MEMORY),
        ("memory_size_mib", True, MEMORY),
        ("tracing", lambda_.Tracing.ACTIVE, "must be True, False, or None for the default"),
        ("recursive_loop", "Allow", "must be True, False, or None for the default"),
        (
            "architecture",
            "arm64",
            "must be a member of aws_lambda.Architecture, or None for the default",
        ),
    ],
)
def test_a_setting_of_the_functions_is_refused(field: str, value: object, rule: str) -> None:
    check_functions(**FUNCTIONS)
    with pytest.raises(InvalidRequest) as refused:
        check_functions(**{**FUNCTIONS, field: value})
    assert (refused.value.field, refused.value.rule) == (field, rule)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("table_name", "ab", NAME),
        ("table_name", "x" * 256, NAME),
        ("table_name", "my table", NAME),
        ("table_name", 12345, NAME),
        ("removal_policy", RemovalPolicy.SNAPSHOT, POLICY),
        ("removal_policy", "retain", POLICY),
        ("deletion_protection", "true", "must be True or False"),
        ("encryption_key", "alias/mine", "must be an aws_kms.IKey"),
    ],
)
def test_a_setting_of_the_table_is_refused(field: str, value: object, rule: str) -> None:
    check_table(**TABLE)
    with pytest.raises(InvalidRequest) as refused:
        check_table(**{**TABLE, field: value})
    assert (refused.value.field, refused.value.rule) == (field, rule)


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Own")


def make(stack: Stack, **settings: Any) -> LockService:  # noqa: ANN401 - also mistaken ones
    return LockService(stack, "Locks", **settings)


@pytest.mark.parametrize("field", ["log_level", "table_name"])
def test_a_refused_service_leaves_nothing_behind(stack: Stack, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: "):
        make(stack, **{field: "?"})
    assert stack.node.children == []


@pytest.mark.parametrize("field", ["table_name", "deletion_protection", "encryption_key"])
def test_of_an_existing_table_nothing_can_be_set(stack: Stack, field: str) -> None:
    existing = dynamodb.Table.from_table_name(stack, "Existing", "locks")
    value = {
        "table_name": "locks",
        "deletion_protection": True,
        "encryption_key": kms.Key.from_key_arn(
            stack, "Key", "arn:aws:kms:us-east-1:123456789012:key/1"
        ),
    }[field]
    with pytest.raises(InvalidRequest, match=f"^{field}: must be left out with table="):
        make(stack, table=existing, **{field: value})


def test_a_table_is_given_as_a_construct(stack: Stack) -> None:
    with pytest.raises(InvalidRequest, match=r"^table: must be an aws_dynamodb.ITable"):
        make(stack, table="locks")


def test_a_service_over_an_existing_table_makes_none(stack: Stack) -> None:
    """As after a redeployment: the table was retained."""
    locks = LockService(stack, "Locks", table=dynamodb.Table.from_table_name(stack, "Old", "old"))
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::DynamoDB::Table", 0)
    functions = template.find_resources("AWS::Lambda::Function").values()
    tables = [f["Properties"]["Environment"]["Variables"]["FAIRLOCK_TABLE_NAME"] for f in functions]
    assert tables == ["old"] * 4
    assert locks.table.table_name == "old"


def test_a_service_whose_construct_has_moved_makes_a_second_table_unless_it_has_a_name(
    tmp_path: Path,
) -> None:
    """Other logical ids are other tables; a fixed name makes that deployment fail instead."""
    ids, names = set(), set()
    for number, construct_id in enumerate(("Locks", "RenamedLocks")):
        stack = Stack(App(outdir=str(tmp_path / str(number))), "Own")
        LockService(stack, construct_id, table_name="locks")
        [(logical_id, table)] = (
            Template.from_stack(stack).find_resources("AWS::DynamoDB::Table").items()
        )
        ids.add(logical_id)
        names.add(table["Properties"]["TableName"])
    assert (len(ids), names) == (2, {"locks"})
