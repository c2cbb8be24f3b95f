"""`LockGuard(shared=True)`: what its states ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import Duration, Stack

from fairlock.cdk import Waiting
from fairlock.cdk.guard.standalone import FUNCTIONS, guarded_machine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_factory import GuardFactory
from tests.unit.cdk.test_guard_keep_alive import rendered

ARNS = {name: f"${{{name}}}" for name in FUNCTIONS}
WORK = {"Type": "Pass"}
EXPRESSION = "{% $states.input.readers %}"


@pytest.fixture
def guards() -> GuardFactory:
    return GuardFactory(Stack())


def requests(guards: GuardFactory, **options: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - a guard's
    for state in rendered(guards.guard(**options)):
        payload = state.get("Arguments", {}).get("Payload", {})
        if "lease_seconds" in payload:
            yield payload


@pytest.mark.parametrize("waiting", [Waiting.poll(), Waiting.queue()])
def test_acquire_and_heartbeat_ask_to_share(guards: GuardFactory, waiting: Waiting) -> None:
    made = [*requests(guards, shared=True, keep_alive=Duration.seconds(5), waiting=waiting)]
    assert len(made) >= 2
    assert {(each["shared"], each["limit"]) for each in made} == {(True, 20)}


@pytest.mark.parametrize("limit", [3, EXPRESSION])
def test_so_many_readers_as_the_guard_says(guards: GuardFactory, limit: int | str) -> None:
    [made] = requests(guards, shared=True, limit=limit)
    assert made["limit"] == 3 or "limit" in made["limit"]


def test_a_plain_guard_asks_for_nothing_more(guards: GuardFactory) -> None:
    assert not [each for each in requests(guards) if "shared" in each]


def test_express_workflows_share_too(guards: GuardFactory) -> None:
    [made] = requests(guards, shared=True, express=True)
    assert made["shared"]


def test_shared_is_true_or_false(guards: GuardFactory) -> None:
    with pytest.raises(InvalidRequest, match=r"^shared: must be True or False"):
        guards.guard(shared="yes")


def test_without_cdk_a_machine_shares_too() -> None:
    machine = guarded_machine(WORK, functions=ARNS, lock_name="x", shared=True)
    text = str(machine)
    assert "'shared': True" in text
    assert "'limit': 20" in text
