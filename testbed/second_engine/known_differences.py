"""Differences that are known, by case. docs/second-engine.md says more about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from testbed.second_engine.comparison import Difference

_NULL_PAYLOAD: Final = Difference(
    "LocalStack", "invokes a function with {} where the input is null", failed=5
)
_JAVA_NAMES: Final = Difference(
    "LocalStack", "does not know Bool, Nul, Ss: the names that Step Functions has for these types"
)
_NO_STATUS_EVENTS: Final = Difference(
    "this set-up",
    "the embedded EventBridge takes no status events from outside, so no one reaps",
    failed=2,
)
_NAMED_BY_STATES: Final = (
    "LocalStack makes States.Runtime of a Fail whose error begins with States."
)

OF_LOCALSTACK: Final[Mapping[str, Difference]] = {
    "guard/guard: any json passes unchanged": _NULL_PAYLOAD,
    "guard/guard: a release that fails does not replace the error": _NO_STATUS_EVENTS,
    "optimistic/updates: the first write makes the item and null deletes it": _JAVA_NAMES,
    "optimistic/updates: only dynamodb limits how deeply an item is nested": _JAVA_NAMES,
    "optimistic/updates: a task that ends by itself has seen the item and writes nothing": (
        _JAVA_NAMES
    ),
    "guard/waiting: a dead waiter at the head of the queue is passed over at once": Difference(
        "LocalStack",
        "runs a stopped execution on while a task waits for its token, and accepts that",
    ),
    "guard/guard: a release that fails does not replace the result": Difference(
        "undecided",
        "JSONata rounds the numbers of $string to 15 digits: LockNotReleased beside a token of 16",
    ),
    "guard/waiting: a forged answer ends no heartbeat unless the check is left out": (
        Difference("undecided", "LocalStack has no Retry and no Catch for an Output that fails")
    ),
    "cases/guards: the timeout of a task leaves the guard by its own name": Difference(
        "undecided", _NAMED_BY_STATES, failed=2
    ),
}
OF_DYNAMODB_LOCAL: Final[Mapping[str, Difference]] = {
    "store/newest: a newer version may stand behind everything that one page reads": Difference(
        "DynamoDB Local", "of 2020 allows 10 items in a transaction, DynamoDB allows 100"
    ),
}
