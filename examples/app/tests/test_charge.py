"""The workflow's function, over a table that refuses: no AWS."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

CALL = {"customer_id": "7", "fencing_token": 33}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, text in {
        "ACCOUNTS": "accounts",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "charge"))
    return importlib.import_module("index")


def refused(index: ModuleType, last_token: str) -> Stubber:
    stubber = Stubber(index.accounts.meta.client)
    stubber.add_client_error(
        "update_item",
        "ConditionalCheckFailedException",
        modeled_fields={"Item": {"fencing_token": {"N": last_token}}},
    )
    return stubber


def test_a_call_that_comes_again_charges_once(index: ModuleType) -> None:
    with refused(index, "33"):
        assert index.handler(CALL, None) == {"charged": "7"}


def test_a_holder_that_has_lost_the_lock_charges_nothing(index: ModuleType) -> None:
    with refused(index, "34"), pytest.raises(ClientError):
        index.handler(CALL, None)
