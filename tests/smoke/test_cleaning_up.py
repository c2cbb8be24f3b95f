"""What the smoke test deploys into a real account is destroyed, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.locks import ContestedLock
from tests.smoke import account
from tests.smoke.account import (
    DEPLOYED,
    RETAINED,
    SEPARATE,
    Account,
    delete_retained,
    in_aws,
)
from tests.smoke.conftest import decided_by


class Stub:
    """An account in which nothing is but the `present` stacks; it notes what is asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, present: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        self.present = present
        self.failing: tuple[str, ...] = ()
        monkeypatch.setattr(account, "CloudFormation", lambda *_, **__: self)
        monkeypatch.setattr(boto3, "client", lambda *_, **__: self)
        monkeypatch.setattr(account, "_synthesize", lambda *_: None)
        monkeypatch.setattr(account, "_cdk", lambda _, what, *__: self.ask(f"cdk {what}"))

    def exists(self, stack: str) -> bool:
        return stack in self.present

    def close(self) -> None:
        """Nothing is open."""

    def delete(self, stack: str) -> None:
        self.ask(f"delete {stack}")

    def ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.failing:
            raise RuntimeError(what)


EVERY_STACK = {"cdk deploy", "cdk destroy", *(f"delete {stack}" for stack in SEPARATE)}


@pytest.mark.parametrize("failing", ["a case", *sorted(EVERY_STACK)])
def test_whatever_fails_every_stack_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    stub = Stub(monkeypatch)
    stub.failing = (failing,)
    (tmp_path / "outputs.json").write_text("{}")
    with pytest.raises(RuntimeError, match=failing), in_aws(tmp_path):
        stub.ask("a case")
    assert set(stub.asked) - {"a case"} == EVERY_STACK
    assert stub.asked[-1] == "cdk destroy", "the others import from these stacks"


@pytest.mark.parametrize("stack", [*DEPLOYED, *SEPARATE])
def test_a_stack_that_was_there_before_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stack: str
) -> None:
    stub = Stub(monkeypatch, present=(stack,))
    with pytest.raises(pytest.fail.Exception, match=stack), in_aws(tmp_path):
        pass
    assert stub.asked == []


def test_a_case_that_does_not_say_what_it_decides_is_refused() -> None:
    def says(case: Any) -> Any:  # noqa: ANN401 - a function
        """Decides whether the docstring
        is read as one sentence.

        Not this.
        """
        return case

    assert decided_by(says) == "Decides whether the docstring is read as one sentence."
    with pytest.raises(AssertionError, match="does not say what it decides"):
        decided_by(test_a_stack_that_was_there_before_is_left_alone)


# Case 15: a service that is destroyed and deployed again, with the table it retains.


def test_a_retained_table_outlives_its_stack_and_a_new_deployment_has_another(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether a destroyed service's table and locks stay, and a redeployment ignores them.

    Then clients of the old table and functions of the new one do not exclude each other.
    """
    stacks, tables = account.stacks, set[str]()

    @contextmanager
    def deployed() -> Iterator[Deployment]:
        try:
            outputs = {RETAINED: stacks.create(RETAINED)}
            yield replace(account.workflows, outputs=outputs, service=RETAINED)
        finally:
            # Even if the creation has failed: what is to be retained outlives its rollback.
            tables.update(stacks.resources(RETAINED, "AWS::DynamoDB::Table"))
            groups = stacks.resources(RETAINED, "AWS::Logs::LogGroup")
            delete_groups = (account.client("logs"), "delete_log_group", "logGroupName")
            removal.callback(delete_retained, *delete_groups, groups)
            stacks.delete(RETAINED)

    with ExitStack() as removal:
        delete_tables = (account.client("dynamodb"), "delete_table", "TableName")
        removal.callback(delete_retained, *delete_tables, tables)  # those that are there then
        with deployed() as service:
            first = replace(lock, deployment=service)
            assert first.ask(owner_name="the first")["acquired"]
        assert not stacks.exists(RETAINED)
        assert first.holders() == ["the first"]
        with deployed() as service:
            second = replace(lock, deployment=service)
            assert second.ask(owner_name="the second")["acquired"]
            account.tell(f"destroyed and redeployed: {len(tables)} old table stays")
            assert second.deployment.table_name != first.deployment.table_name
            assert (first.holders(), second.holders()) == (["the first"], ["the second"])
