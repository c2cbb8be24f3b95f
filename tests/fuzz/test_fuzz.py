"""A slice of `make fuzz`, and planted defects, each of which it must find."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from fairlock.client import arguments
from fairlock.client.base_lock import BaseLock
from fairlock.protocol.model import AcquireRequest
from fairlock.wire import requests
from lambdas import acquire, runtime, telemetry
from tests.fuzz.clients import fuzz_clients
from tests.fuzz.handlers import fuzz_handlers
from tests.fuzz.values import SECRETS, leaks

REQUESTS = 2_500
CALLS = 1_000
SEED = 20_261_122
FEW = 400
"""As many as a planted defect may take to be found."""


def test_handlers_raise_typed_errors_write_nothing_on_refusal_and_show_no_secret() -> None:
    findings = fuzz_handlers(REQUESTS, seed=SEED)
    assert findings.calls == REQUESTS
    assert (findings.defects, findings.examples) == ({}, [])
    ways = set(findings.outcomes)
    assert ways >= {"acquired True", "acquired HELD", "acquired QUEUED", "renewed True"}
    assert ways >= {"released True", "released NOT_HELD", "reap batches", "limited"}
    assert ways >= {"acquired SUPERSEDED", "reserved True", "reserved TOO_LATE"}
    assert ways >= {"InvalidRequest", "LockStoreUnavailable", "LockStoreMisconfigured", "LockLost"}


def test_clients_raise_typed_errors_write_nothing_on_refusal_and_show_no_secret() -> None:
    findings = fuzz_clients(CALLS, seed=SEED)
    assert findings.calls == CALLS
    assert (findings.defects, findings.examples) == ({}, [])
    assert set(findings.outcomes) >= {"returned", "InvalidRequest", "LockLost", "LockWaitTimeout"}


def test_a_handler_that_raises_a_key_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {}
    monkeypatch.setattr(acquire, "acquire_answer", lambda _answer: answers["reason"])
    assert "untyped errors" in fuzz_handlers(FEW, seed=SEED).defects


@pytest.mark.parametrize("shows", ["the owner_id", "the task token", "a hash"])
def test_a_handler_that_logs_a_secret_is_found(shows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(request: AcquireRequest, _answer: object, **_more: object) -> None:
        secrets = {"the owner_id": request.owner_id, "the task token": request.task_token}
        telemetry.logger.debug("seen", extra={"of": secrets.get(shows, hashed(request.owner_id))})

    monkeypatch.setattr(acquire, "observe_acquire", observe)
    assert "secrets in logs and metrics" in fuzz_handlers(FEW, seed=SEED).defects


def hashed(owner_id: str) -> str:
    return hashlib.sha256(owner_id.encode()).hexdigest()[:12]


def test_a_handler_that_writes_before_it_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(event: Any) -> AcquireRequest:  # noqa: ANN401 - whatever JSON is
        item = {"pk": {"S": "x"}, "sk": {"S": "x"}}
        runtime._client("dynamodb").put_item(TableName="locks", Item=item)  # noqa: SLF001 - as a handler would
        return requests.parse_acquire(event)

    monkeypatch.setattr(acquire, "parse_acquire", parse)
    assert "writes on refusal" in fuzz_handlers(FEW, seed=SEED).defects


def test_an_answer_that_shows_anothers_owner_id_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"acquired": False, "holders": SECRETS[:1]}
    monkeypatch.setattr(acquire, "acquire_answer", lambda _answer: answer)
    assert "secrets in answers and reprs" in fuzz_handlers(FEW, seed=SEED).defects


def test_a_message_that_shows_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_fault", lambda *blamed: ValueError(f"{blamed}"))
    defects = fuzz_handlers(FEW, seed=SEED).defects
    assert {"untyped errors", "secrets in errors"} <= set(defects)


def test_a_client_that_does_not_check_an_argument_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "require_max_wait", lambda _value: None)
    assert "untyped errors" in fuzz_clients(FEW, seed=SEED).defects


def test_a_lock_that_shows_its_owner_id_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseLock, "__repr__", lambda lock: f"<Lock of {lock.owner_id}>")
    assert "secrets in answers and reprs" in fuzz_clients(FEW, seed=SEED).defects


@pytest.mark.parametrize(
    "shown",
    [
        SECRETS[0],
        SECRETS[7][:9],
        SECRETS[3].upper(),
        hashed(SECRETS[5]),
    ],
)
def test_a_secret_a_part_of_it_and_its_hash_are_recognized(shown: str) -> None:
    assert leaks(f"… {shown} …")
    assert not leaks("… an owner whose lease is over …")
