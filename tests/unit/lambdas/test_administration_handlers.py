"""The functions that show and free locks: what they answer, log and count, and never show."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import botocore
import pytest

from fairlock.aws.executions import DurableFunctions
from fairlock.errors import InvalidRequest, LockStoreMisconfigured
from fairlock.store.reap import ExecutionEnded
from lambdas import acquire, force_release, heartbeat, inspect, release, runtime, set_limit
from lambdas.reap_messages import ReapMessage, parse_reap_message
from tests.support import lines
from tests.support.store_bench import FakeWorkflows
from tests.unit.lambdas.conftest import ANNA, BEN, CONTEXT, WHO, Output

pytestmark = pytest.mark.usefixtures("lambda_environment")


def granted(**fields: Any) -> int:  # noqa: ANN401 - of the request
    answer = acquire.handler({**ANNA, "owner_name": "anna", **fields}, CONTEXT)
    token: int = answer["fencing_token"]
    return token


def test_a_lock_is_described_without_what_proves_ownership(capsys: Output) -> None:
    token = granted(data={"job": 7})
    acquire.handler({**BEN, "owner_name": "ben", "queue": True}, CONTEXT)
    found = inspect.handler({"lock_name": "customer/1"}, CONTEXT)
    assert (found["found"], found["lock_name"], found["limit"]) == (True, "customer/1", 1)
    [holder] = found["holders"]
    assert (holder["owner_name"], holder["fencing_token"]) == ("anna", token)
    assert holder["data"] == {"job": 7}
    assert found["waiters"]["count"] == 1
    assert found["waiters"]["oldest"] == found["waiters"]["first"][0]["entered_at"]
    for secret in (ANNA["owner_id"], BEN["owner_id"]):
        assert secret not in json.dumps(found) + capsys.readouterr().out
    unknown = inspect.handler({"lock_name": "customer/2"}, CONTEXT)
    assert unknown == {"found": False, "lock_name": "customer/2"}


@pytest.mark.parametrize("limit", [-1, 101])
def test_a_wrong_or_missing_limit_is_refused_by_the_name_of_its_field(limit: int) -> None:
    with pytest.raises(InvalidRequest, match=r"^limit: must"):
        set_limit.handler({"lock_name": "customer/1", "limit": limit, **WHO}, CONTEXT)
    with pytest.raises(InvalidRequest, match=r"^limit: is required"):
        set_limit.handler({"lock_name": "customer/1", **WHO}, CONTEXT)


def test_a_pause_is_logged_and_counted_and_told_to_all_who_ask(capsys: Output) -> None:
    token = granted()
    paused = {"lock_name": "customer/1", "limit": 0}
    assert set_limit.handler({**paused, **WHO}, CONTEXT) == paused
    told = lines(capsys)
    [audit] = [line for line in told if line.get("message") == "ceiling changed"]
    assert {**WHO, "lock_name": "customer/1", "ceiling": 0, "level": "WARNING"}.items() <= (
        audit.items()
    )
    [metrics] = [line for line in told if "_aws" in line and "CeilingChanged" in line]
    assert metrics["CeilingChanged"] == [1.0]
    for waits, reason in ((False, "HELD"), (True, "QUEUED")):
        answer = acquire.handler({**BEN, "queue": waits}, CONTEXT)
        assert (answer["acquired"], answer["reason"]) == (False, reason)
        assert {"limit": 0, **WHO}.items() <= answer["ceiling"].items()
        assert answer["detail"].startswith("the lock is paused by olga since ")
        assert answer["detail"].endswith("(hangs since 3 a.m.)")
    assert heartbeat.handler(dict(ANNA), CONTEXT)["fencing_token"] == token
    release.handler(dict(ANNA), CONTEXT)
    [listed] = inspect.handler({}, CONTEXT)["locks"]
    assert listed["ceiling"] == answer["ceiling"]
    assert set_limit.handler({**paused, **WHO, "limit": None}, CONTEXT)["limit"] is None
    assert heartbeat.handler(dict(BEN), CONTEXT)["renewed"] is True
    assert inspect.handler({"lock_name": "customer/1"}, CONTEXT)["ceiling"] is None


def test_locks_in_use_are_listed_and_free_ones_on_request() -> None:
    granted()
    release.handler(dict(ANNA), CONTEXT)
    granted(lock_name="customer/2")
    granted(lock_name="other")
    found = inspect.handler({"prefix": "customer/"}, CONTEXT)
    assert [lock["lock_name"] for lock in found["locks"]] == ["customer/2"]
    assert (found["after"], found["malformed"]) == (None, [])
    found = inspect.handler({"free": True}, CONTEXT)
    assert {lock["lock_name"] for lock in found["locks"]} == {"customer/1", "customer/2", "other"}


def test_a_forced_release_logs_who_what_and_why_and_is_counted(capsys: Output) -> None:
    token = granted()
    acquire.handler({**BEN, "queue": True}, CONTEXT)
    capsys.readouterr()
    asked = {"lock_name": "customer/1", "fencing_token": token}
    assert force_release.handler({**asked, **WHO}, CONTEXT) == {"released": True, **asked}
    told = lines(capsys)
    [audit] = [line for line in told if line.get("message") == "released by force"]
    assert audit["level"] == "WARNING"
    assert {**asked, **WHO, "owner_name": "anna"}.items() <= audit.items()
    assert audit["function_request_id"] == CONTEXT.aws_request_id
    [metrics] = [line for line in told if "_aws" in line]
    assert metrics["ForcedRelease"] == [1.0]
    assert ANNA["owner_id"] not in json.dumps(told)
    assert heartbeat.handler(dict(ANNA), CONTEXT)["renewed"] is False
    assert release.handler(dict(ANNA), CONTEXT)["reason"] == "NOT_HELD"
    assert heartbeat.handler(dict(BEN), CONTEXT)["renewed"] is True


def test_a_repeat_is_answered_again_and_a_later_holder_stays() -> None:
    token = granted()
    asked = {"lock_name": "customer/1", "fencing_token": token}
    for _ in range(2):
        assert force_release.handler({**asked, **WHO}, CONTEXT)["released"] is True
    acquire.handler(dict(BEN), CONTEXT)
    asked["fencing_token"] = token + 7
    answer = force_release.handler({**asked, **WHO}, CONTEXT)
    assert answer == {"released": False, **asked, "reason": "HOLDER_CHANGED"}
    assert heartbeat.handler(dict(BEN), CONTEXT)["renewed"] is True


# The entry points and durable executions: answers, pushes through callbacks, and the reaper.

DURABLE_ANNA = {"lock_name": "customer/1", "owner_id": "anna-0123456789ab"}
DURABLE_BEN = {**DURABLE_ANNA, "owner_id": "ben_-0123456789ab"}
EXECUTION = "arn:aws:lambda:us-east-1:123456789012:function:billing:7/durable-execution/run/id"
CALLBACK = "Q2FsbGJhY2s="
BEN_WAITS = {
    **DURABLE_BEN,
    "task_token": CALLBACK,
    "execution_arn": EXECUTION,
    "fallback_seconds": 300,
}


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflows:
    """Answers the handlers instead of Lambda."""
    callbacks = FakeWorkflows()
    monkeypatch.setattr(DurableFunctions, "wake_waiter", callbacks.wake_waiter)
    return callbacks


def test_a_grant_is_the_answer_and_only_a_release_hands_over_through_the_callback(
    engine: FakeWorkflows, callbacks: FakeWorkflows
) -> None:
    assert acquire.handler(dict(DURABLE_ANNA), CONTEXT)["acquired"] is True
    assert acquire.handler(dict(BEN_WAITS), CONTEXT)["reason"] == "QUEUED"
    assert callbacks.woken == []
    release.handler(dict(DURABLE_ANNA), CONTEXT)
    [(callback_id, grant)] = callbacks.woken
    assert (callback_id, grant.owner_id) == (CALLBACK, DURABLE_BEN["owner_id"])
    assert acquire.handler(dict(BEN_WAITS), CONTEXT)["acquired"] is True
    assert (len(callbacks.woken), engine.woken) == (1, [])


@pytest.mark.parametrize("handler", [acquire.handler, release.handler])
def test_a_durable_execution_of_another_account_is_refused(handler: Any) -> None:  # noqa: ANN401 - a handler
    elsewhere = EXECUTION.replace("123456789012", "210987654321")
    with pytest.raises(InvalidRequest, match="must be an execution of this service's account"):
        handler({**DURABLE_BEN, "execution_arn": elsewhere}, CONTEXT)


@pytest.mark.parametrize(
    ("version", "is_new"),
    [
        *((version, False) for version in ("1.41.6", "1.9.0", "0.99.0")),
        *((version, True) for version in ("1.42.1", "1.100.0", "2.0.0", "1.43.0.dev1")),
    ],
)
def test_an_aws_sdk_without_durable_functions_takes_no_lock_for_them(
    monkeypatch: pytest.MonkeyPatch, version: str, *, is_new: bool
) -> None:
    monkeypatch.setattr(botocore, "__version__", version)
    refused = pytest.raises(LockStoreMisconfigured, match=f"botocore {version}, .* needs 1.42.1")
    with nullcontext() if is_new else refused:
        assert acquire.handler(dict(BEN_WAITS), CONTEXT)["acquired"] is True
    # Nothing was written for the execution.
    assert acquire.handler(dict(DURABLE_ANNA), CONTEXT)["acquired"] is not is_new


def test_the_end_of_a_durable_execution_is_a_message_to_the_reaper() -> None:
    body = json.dumps({"detail": {"executionArn": EXECUTION}})
    assert parse_reap_message(body) == ReapMessage(ExecutionEnded(execution_arn=EXECUTION))


@pytest.mark.parametrize("meets_durable", [False, True])
def test_a_client_for_lambda_is_made_only_where_durable_functions_are_met(
    monkeypatch: pytest.MonkeyPatch, *, meets_durable: bool
) -> None:
    made: list[str] = []
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "acquire")
    if meets_durable:
        monkeypatch.setenv("FAIRLOCK_DURABLE", "1")
    monkeypatch.setattr(runtime, "_client", made.append)
    runtime.make_clients("dynamodb", "stepfunctions")
    assert made == ["dynamodb", "stepfunctions", *(["lambda"] if meets_durable else [])]
