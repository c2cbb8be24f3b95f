"""`fairlock doctor`: what it finds wrong with a table, and that it writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from fairlock.cli.doctor import PROBES, Finding, Verdict, doctor, examine
from fairlock.cli.target import Target
from tests.support import FakeClock, acquire, store_over
from tests.support.faulty_table import client_error
from tests.unit.cli.conftest import terminal, text_of
from tests.unit.client.doubles import Table

LEFT_BEHIND = "Fairlock-LocksTable1A2B-OLD"
NAME = "Fairlock-LocksTable1A2B-NEW"
CALLER = "arn:aws:sts::123456789012:assumed-role/OnCall/olga"


@dataclass
class Account:
    """The services that a doctor asks, with what may be wrong there.

    Attributes:
        denied: operations without a permission.
        clock_is_ahead: seconds by which the service's clock is ahead of ours.
        fields: of the table's description.
        ttl: of its TTL.
        names: of the account's tables.
    """

    table: Table
    clock: FakeClock
    meta: ClassVar = SimpleNamespace(endpoint_url="https://dynamodb.us-east-1.amazonaws.com")
    denied: set[str] = field(default_factory=set)
    clock_is_ahead: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)
    ttl: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: [NAME, "another-table"])
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            self.asked.append(name)
            if name in self.denied:
                raise client_error("AccessDeniedException")
            answer = vars(Account).get(f"_{name}")
            if answer is not None:
                return answer(self, **arguments)
            return getattr(self.table, name)(**arguments)

        return call

    def _describe_table(self, TableName: str) -> dict[str, Any]:  # noqa: N803 - boto3's
        key = {"HASH": "pk", "RANGE": "sk"}
        now = self.clock.now_ms / 1000 + self.clock_is_ahead
        return {
            "Table": {
                "TableName": TableName,
                "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{TableName}",
                "KeySchema": [{"KeyType": k, "AttributeName": n} for k, n in key.items()],
                "AttributeDefinitions": [
                    {"AttributeName": n, "AttributeType": "S"} for n in key.values()
                ],
                **self.fields,
            },
            "ResponseMetadata": {
                "HTTPHeaders": {"date": formatdate(now, usegmt=True), "x-amzn-requestid": "r"}
            },
        }

    def _describe_time_to_live(self, **_table: str) -> dict[str, Any]:
        right = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiry_time"}
        return {"TimeToLiveDescription": {**right, **self.ttl}}

    def _list_tables(self, **start: str) -> dict[str, Any]:
        first = self.names.index(start["ExclusiveStartTableName"]) + 1 if start else 0
        page = self.names[first : first + 1]
        more = first + 1 < len(self.names)
        return {"TableNames": page, **({"LastEvaluatedTableName": page[-1]} if more else {})}

    def _get_caller_identity(self) -> dict[str, str]:
        return {"Arn": CALLER}

    def _describe_execution(self, **_execution: str) -> None:
        raise client_error("ExecutionDoesNotExist")


@pytest.fixture
def account(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account(Table(), clock)
    store_over(account.table.memory, clock).acquire(acquire("anna"))
    monkeypatch.setattr(Target, "client", lambda *_args, **_settings: account)
    return account


def findings(account: Account) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(Target(table=NAME), account.clock)}


def verdicts(account: Account, verdict: Verdict) -> set[str]:
    return {name for name, found in findings(account).items() if found.verdict is verdict}


def test_a_sound_table_is_all_ok_and_nothing_is_written(account: Account) -> None:
    before = dict(account.table.memory.items)
    assert verdicts(account, Verdict.OK) == set(findings(account))
    assert {probe.action for probe in PROBES} <= set(findings(account))
    assert account.table.memory.items == before
    assert {"update_item", "put_item", "delete_item", "transact_write_items"} <= {*account.asked}


@pytest.mark.parametrize("ahead", [-240, -62, 62, 240])
def test_a_clock_that_aws_may_soon_refuse_is_a_warning(account: Account, ahead: float) -> None:
    account.clock_is_ahead = ahead
    found = findings(account)["clock"]
    assert found.verdict is Verdict.WARNING
    assert ("behind" if ahead > 0 else "ahead of") in found.text


@pytest.mark.parametrize("ahead", [-50, 50])
def test_a_clock_that_is_a_little_wrong_is_told_and_harms_no_lease(
    account: Account, ahead: float
) -> None:
    account.clock_is_ahead = ahead
    found = findings(account)["clock"]
    assert (found.verdict, "which times the leases" in found.text) == (Verdict.OK, True)


@pytest.mark.parametrize("ahead", [-0.4, 0, 0.4])
def test_a_clock_that_agrees_with_the_date_is_right(account: Account, ahead: float) -> None:
    account.clock_is_ahead = ahead
    assert "this machine's clock agrees" in findings(account)["clock"].text


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"KeySchema": [{"KeyType": "HASH", "AttributeName": "id"}]}, "no lock table"),
        ({"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "N"}]}, "strings"),
        ({"Replicas": [{"RegionName": "eu-west-1"}]}, "two regions may grant the same lock"),
        (
            {"Replicas": [{"RegionName": "eu-west-1"}], "MultiRegionConsistency": "STRONG"},
            "DynamoDB refuses transactions there, which workflows need, and TTL",
        ),
    ],
)
def test_a_table_that_cannot_lock_is_found(
    account: Account, wrong: dict[str, Any], told: str
) -> None:
    account.fields = wrong
    found = findings(account)["table key"]
    assert (found.verdict, told in found.text) == (Verdict.FAILURE, True)


@pytest.mark.parametrize(
    ("ttl", "verdict"),
    [
        ({"TimeToLiveStatus": "DISABLED"}, Verdict.WARNING),
        ({"AttributeName": "expires_at_ms"}, Verdict.FAILURE),
        ({"TimeToLiveStatus": "ENABLING"}, Verdict.OK),
    ],
)
def test_ttl_must_be_on_and_on_the_right_attribute(
    account: Account, ttl: dict[str, str], verdict: Verdict
) -> None:
    account.ttl = ttl
    assert findings(account)["TTL"].verdict is verdict


@pytest.mark.parametrize(
    ("operation", "check", "verdict"),
    [
        ("update_item", "UpdateItem", Verdict.FAILURE),
        ("put_item", "PutItem", Verdict.FAILURE),
        ("get_item", "GetItem", Verdict.FAILURE),
        ("query", "Query", Verdict.FAILURE),
        ("delete_item", "DeleteItem", Verdict.FAILURE),
        ("scan", "Scan", Verdict.WARNING),
        ("transact_write_items", "ConditionCheckItem", Verdict.WARNING),
        ("describe_execution", "DescribeExecution", Verdict.WARNING),
        ("list_tables", "second table", Verdict.UNKNOWN),
        ("get_caller_identity", "caller", Verdict.UNKNOWN),
        ("describe_time_to_live", "TTL", Verdict.UNKNOWN),
    ],
)
def test_a_permission_that_is_missing_is_told_and_all_else_is_checked(
    account: Account, operation: str, check: str, verdict: Verdict
) -> None:
    account.denied = {operation}
    found = findings(account)
    assert found.pop(check).verdict is verdict
    assert {finding.verdict for finding in found.values()} == {Verdict.OK}


def test_without_the_description_of_the_table_the_rest_is_checked(account: Account) -> None:
    account.denied = {"describe_table"}
    assert verdicts(account, Verdict.UNKNOWN) == {"table", "clock", "DescribeExecution"}
    assert verdicts(account, Verdict.FAILURE) == set()


def test_a_table_that_is_not_there_ends_the_examination(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, told in (
        (client_error("ResourceNotFoundException"), "create-table"),
        (EndpointConnectionError(endpoint_url="x"), "does not answer"),
        (client_error("ExpiredTokenException"), "check the AWS credentials"),
        (NoCredentialsError(), "check the AWS credentials"),
    ):

        def fail(_account: Account, error: Exception = error, **_table: str) -> None:
            raise error

        monkeypatch.setattr(Account, "_describe_table", fail)
        found = findings(account)
        assert found.pop("caller").text == CALLER
        [finding] = found.values()
        assert finding.verdict is Verdict.FAILURE
        assert told in finding.text


def test_a_table_that_an_earlier_stack_left_behind_is_found(account: Account) -> None:
    account.names = ["another-table", LEFT_BEHIND, NAME]
    found = findings(account)["second table"]
    assert found.verdict is Verdict.WARNING
    assert LEFT_BEHIND in found.text
    assert "another-table" not in found.text


def test_a_table_that_was_restored_from_a_backup_is_told_with_its_date(account: Account) -> None:
    assert "backup" not in findings(account)
    found = restored(account, at=datetime(2030, 3, 18, 3, 0, tzinfo=UTC))
    assert found.verdict is Verdict.WARNING
    assert "2030-03-18 03:00" in found.text
    assert "lock 'nightly-report', for one, may be granted again" in found.text


def restored(account: Account, *, at: datetime) -> Finding:
    account.fields = {"RestoreSummary": {"RestoreDateTime": at, "RestoreInProgress": False}}
    return findings(account)["backup"]


def test_the_warning_ends_once_no_lock_of_the_backup_is_left(
    account: Account, clock: FakeClock
) -> None:
    at = datetime(2030, 3, 18, 3, 0, tzinfo=UTC)
    store = store_over(account.table.memory, clock)
    for number in range(3):
        store.acquire(acquire("ben", lock_name=f"old-{number}"))
    account.table.memory.page_size = 1
    assert restored(account, at=at).verdict is Verdict.WARNING
    account.table.memory.items.clear()
    clock.advance(2 * 86_400)
    for number in range(3):
        store.acquire(acquire("ben", lock_name=f"new-{number}"))
    found = restored(account, at=at)
    assert (found.verdict, "no lock of that backup" in found.text) == (Verdict.OK, True)


def test_who_may_not_read_the_table_is_told_that_it_was_restored_without_a_verdict(
    account: Account,
) -> None:
    account.denied = {"scan"}
    assert restored(account, at=datetime(2030, 3, 18, 3, 0, tzinfo=UTC)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("width", [80, 120])
def test_the_findings_fit_the_terminal_and_a_failure_has_a_status(
    account: Account, width: int
) -> None:
    account.names = [NAME, LEFT_BEHIND]
    console = terminal(width)
    assert doctor(Target(table=NAME), console, account.clock) == 0
    assert max(map(len, text_of(console).splitlines())) <= width
    account.denied = {"update_item"}
    console = terminal(width)
    assert doctor(Target(table=NAME), console, account.clock) == 1
    assert "FAILURE" in text_of(console)


def test_as_json_the_findings_are_one_object_and_a_failure_has_a_status(
    account: Account,
) -> None:
    for denied, status in (set[str](), 0), ({"get_item"}, 1):
        account.denied = denied
        console = terminal(80)
        target = Target(table=NAME, region="us-east-1")
        assert doctor(target, console, account.clock, as_json=True) == status
        told = json.loads(text_of(console))
        assert (told["table"], told["region"], told["fit"]) == (NAME, "us-east-1", status == 0)
        verdicts = {one["check"]: one["verdict"] for one in told["findings"]}
        assert verdicts["GetItem"] == ("failure" if status else "ok")
        assert set(verdicts.values()) <= {verdict.name.lower() for verdict in Verdict}
