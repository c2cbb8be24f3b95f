"""`fairlock doctor`: what it finds wrong with a table, and that it writes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from fairlock.cli.doctor import PROBES, Finding, Verdict, doctor, examine
from fairlock.cli.target import Target
from fairlock.testing import ManualClock
from tests.support import Operations, acquire
from tests.support.faulty_table import client_error
from tests.unit.cli.conftest import CALLER, NAME, Account, Run, terminal, text_of

LEFT_BEHIND = "Fairlock-LocksTable1A2B-OLD"
DENIED: Exception = client_error("AccessDeniedException")
RESTORED_AT = datetime(2030, 3, 18, 3, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def lock(store: Operations) -> None:
    store.acquire(acquire("anna"))


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


def replicated(**fields: str) -> dict[str, Any]:
    return {"fields": {"Replicas": [{"RegionName": "eu-west-1"}], **fields}}


OTHER_KEY = {"KeySchema": [{"KeyType": "HASH", "AttributeName": "id"}]}
NO_STRING = {"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "N"}]}
AHEAD, BEHIND = "s ahead of the AWS clock", "s behind the AWS clock"
LEASES = ", which times the leases"
CASES: list[tuple[dict[str, Any], str, Verdict, str]] = [
    *(
        ({"clock_is_ahead": seconds}, "clock", Verdict.OK, "this machine's clock agrees")
        for seconds in (-0.4, 0, 0.4)
    ),
    ({"clock_is_ahead": -50}, "clock", Verdict.OK, f"{AHEAD}{LEASES}"),
    ({"clock_is_ahead": 50}, "clock", Verdict.OK, f"{BEHIND}{LEASES}"),
    *(({"clock_is_ahead": seconds}, "clock", Verdict.WARNING, AHEAD) for seconds in (-240, -62)),
    *(({"clock_is_ahead": seconds}, "clock", Verdict.WARNING, BEHIND) for seconds in (62, 240)),
    ({"fields": OTHER_KEY}, "table key", Verdict.FAILURE, "no lock table"),
    ({"fields": NO_STRING}, "table key", Verdict.FAILURE, "strings"),
    (replicated(), "table key", Verdict.FAILURE, "two regions may grant the same lock"),
    (
        replicated(MultiRegionConsistency="STRONG"),
        *("table key", Verdict.FAILURE),
        "DynamoDB refuses transactions there, which workflows need, and TTL",
    ),
    ({"ttl": {"TimeToLiveStatus": "DISABLED"}}, "TTL", Verdict.WARNING, "off"),
    ({"ttl": {"AttributeName": "expires_at_ms"}}, "TTL", Verdict.FAILURE, "'expires_at_ms'"),
    ({"ttl": {"TimeToLiveStatus": "ENABLING"}}, "TTL", Verdict.OK, "'expiry_time'"),
    (
        {"names": ["another-table", LEFT_BEHIND, NAME]},
        "second table",
        Verdict.WARNING,
        f"{LEFT_BEHIND}: another",
    ),
    *(
        ({"fails": {operation: DENIED}}, check, verdict, "")
        for operation, check, verdict in (
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
        )
    ),
]


@pytest.mark.parametrize(("wrong", "check", "verdict", "told"), CASES)
def test_what_is_wrong_is_found_by_its_check_and_all_others_are_ok(
    account: Account, wrong: dict[str, Any], check: str, verdict: Verdict, told: str
) -> None:
    for name, value in wrong.items():
        setattr(account, name, value)
    found = findings(account)
    finding = found.pop(check)
    assert (finding.verdict, told in finding.text) == (verdict, True)
    assert {other.verdict for other in found.values()} == {Verdict.OK}


def test_without_the_description_of_the_table_the_rest_is_checked(account: Account) -> None:
    account.fails = {"describe_table": DENIED}
    assert verdicts(account, Verdict.UNKNOWN) == {"table", "clock", "DescribeExecution"}
    assert verdicts(account, Verdict.FAILURE) == set()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (client_error("ResourceNotFoundException"), "create-table"),
        (EndpointConnectionError(endpoint_url="x"), "does not answer"),
        (client_error("ExpiredTokenException"), "check the AWS credentials"),
        (NoCredentialsError(), "check the AWS credentials"),
    ],
)
def test_a_table_that_is_not_there_ends_the_examination(
    account: Account, error: Exception, told: str
) -> None:
    account.fails = {"describe_table": error}
    found = findings(account)
    assert found.pop("caller").text == CALLER
    [finding] = found.values()
    assert (finding.verdict, told in finding.text) == (Verdict.FAILURE, True)


def restored(account: Account) -> Finding:
    account.fields = {
        "RestoreSummary": {"RestoreDateTime": RESTORED_AT, "RestoreInProgress": False}
    }
    return findings(account)["backup"]


def test_a_table_that_was_restored_from_a_backup_is_told_with_its_date(account: Account) -> None:
    assert "backup" not in findings(account)
    found = restored(account)
    assert found.verdict is Verdict.WARNING
    assert "2030-03-18 03:00" in found.text
    assert "lock 'nightly-report', for one, may be granted again" in found.text
    account.fails = {"scan": DENIED}
    assert restored(account).verdict is Verdict.UNKNOWN


def test_the_warning_ends_once_no_lock_of_the_backup_is_left(
    account: Account, store: Operations, clock: ManualClock
) -> None:
    for number in range(3):
        store.acquire(acquire("ben", lock_name=f"old-{number}"))
    account.table.memory.page_size = 1
    assert restored(account).verdict is Verdict.WARNING
    account.table.memory.items.clear()
    clock.advance(2 * 86_400)
    for number in range(3):
        store.acquire(acquire("ben", lock_name=f"new-{number}"))
    found = restored(account)
    assert (found.verdict, "no lock of that backup" in found.text) == (Verdict.OK, True)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("fails", "status"), [({}, 0), ({"update_item": DENIED}, 1)])
def test_the_findings_fit_the_terminal_and_a_failure_has_a_status(
    account: Account, width: int, fails: dict[str, Exception], status: int
) -> None:
    account.names, account.fails = [NAME, LEFT_BEHIND], fails
    console = terminal(width)
    assert doctor(Target(table=NAME), console, account.clock) == status
    assert max(map(len, text_of(console).splitlines())) <= width
    assert ("FAILURE" in text_of(console)) == bool(status)


def test_as_json_the_findings_are_one_object_and_a_failure_has_a_status(
    account: Account, fairlock: Run
) -> None:
    for fails, status in (dict[str, Exception](), 0), ({"get_item": DENIED}, 1):
        account.fails = fails
        answer = fairlock(f"doctor --json --table {NAME}")
        told = json.loads(answer.out)
        assert (answer.status, told["fit"]) == (status, status == 0)
        assert (told["table"], told["region"]) == (NAME, "us-east-1")
        verdicts = {one["check"]: one["verdict"] for one in told["findings"]}
        assert verdicts["GetItem"] == ("failure" if status else "ok")
        assert set(verdicts.values()) <= {verdict.name.lower() for verdict in Verdict}
