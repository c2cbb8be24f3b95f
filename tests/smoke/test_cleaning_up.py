"""What the smoke test deploys into a real account is destroyed, whatever fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.smoke import account
from tests.smoke.account import DEPLOYED, SEPARATE, in_aws
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
        monkeypatch.setattr(account, "_cdk", lambda _, what, *__: self._asked(f"cdk {what}"))

    def exists(self, stack: str) -> bool:
        return stack in self.present

    def close(self) -> None:
        """Nothing is open."""

    def delete(self, stack: str) -> None:
        self._asked(f"delete {stack}")

    def _asked(self, what: str) -> None:
        self.asked.append(what)
        if what in self.failing:
            raise RuntimeError(what)


EVERY_STACK = {"cdk deploy", "cdk destroy", *(f"delete {stack}" for stack in SEPARATE)}


@pytest.mark.parametrize("failing", sorted(EVERY_STACK))
def test_whatever_fails_every_stack_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    stub = Stub(monkeypatch)
    stub.failing = (failing,)
    (tmp_path / "outputs.json").write_text("{}")
    with pytest.raises(RuntimeError, match=failing), in_aws(tmp_path):
        pass
    assert set(stub.asked) == EVERY_STACK
    assert stub.asked[-1] == "cdk destroy", "the others import from these stacks"


def test_a_case_that_fails_is_cleaned_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub = Stub(monkeypatch)
    (tmp_path / "outputs.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt), in_aws(tmp_path):
        raise KeyboardInterrupt
    assert set(stub.asked) == EVERY_STACK


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
