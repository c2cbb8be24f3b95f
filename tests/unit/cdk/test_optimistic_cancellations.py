"""What becomes of a write of an optimistic update that DynamoDB cancels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import optimistic_update
from fairlock.cdk.optimistic_update import VersionedExpressions
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.template import (
    DEEPEST_ON_AWS,
    SPELLED,
    Json,
    Scope,
    TooDeepError,
    as_java,
    definition_of,
    evaluate,
    handling,
)
from tests.unit.cdk.test_optimistic_update import read_states, update


@pytest.fixture(scope="module")
def branch(new_app: NewApp) -> Scope:
    debits = Stack(new_app(), "Debits")
    return next(definition_of(update(debits, "Debit", sfn.Pass(debits, "Compute"))).inner())


CANCELLED = "DynamoDb.TransactionCanceledException"
BUSY = "Transaction cancelled … for specific reasons [TransactionConflict]"
FALSE = "Transaction cancelled … for specific reasons [ConditionalCheckFailed]"


def test_a_cancellation_in_passing_says_nothing_of_the_condition(branch: Scope) -> None:
    for_good = ("ConditionalCheckFailed", "ValidationError", "ItemCollectionSizeLimitExceeded")
    in_passing = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")
    for reasons, then in ((for_good, "Debit: Conflict"), (in_passing, "Debit: Wait")):
        for reason in reasons:
            cause = f"… specific reasons [{reason}] (Service: DynamoDb)"
            assert Update(branch).cancelled(cause, now_ms=1000) == then, reason


def test_only_a_condition_that_was_false_is_a_conflict(branch: Scope) -> None:
    conflict, error = branch.states["Debit: Conflict"], f"VersionConflict.{branch.variable}"
    for cause, told in ((FALSE, error), (BUSY, CANCELLED), ("[ValidationError]", CANCELLED)):
        variables: Json = {branch.variable: {"cause": cause}}
        assert evaluate(conflict["Error"], variables=variables) == told
        assert evaluate(conflict["Cause"], variables=variables) == cause


def test_a_write_is_sent_again_for_less_time_than_its_token_is_known(branch: Scope) -> None:
    update = Update(branch)
    for now_ms in (0, 119_999):
        assert update.cancelled(BUSY, now_ms=now_ms) == "Debit: Wait"
    assert update.cancelled(BUSY, now_ms=120_000) == "Debit: Conflict"
    write = branch.states["Debit: Write"]
    rule = write["Retry"][-1]
    pauses = [min(rule["MaxDelaySeconds"], 2**n) for n in range(rule["MaxAttempts"])]
    sendings = write["TimeoutSeconds"] * (rule["MaxAttempts"] + 1) + sum(pauses)
    assert sendings + 120 + update.pause(now_ms=119_999, drawn=1) + sendings < 600


def test_the_pause_before_the_write_is_sent_again_grows_and_has_full_jitter(branch: Scope) -> None:
    update = Update(branch)
    update.cancelled(BUSY, now_ms=0)
    assert [update.pause(now_ms=ms, drawn=1) for ms in (0, 3000, 60_000)] == [1, 4, 10]
    assert [update.pause(now_ms=60_000, drawn=drawn) for drawn in (0.1, 0.5)] == [1, 5]


class Account:
    """One item, and for each sending what happens to it: it is done if nothing is said."""

    def __init__(self, *sendings: str) -> None:
        self.item: Json = {"account": {"S": "anna"}, "balance": {"N": "0"}, "version": {"N": "7"}}
        self._sendings = iter(sendings)
        self._done: set[str] = set()
        self._open: list[Json] = []
        self._sent: dict[str, Json] = {}

    def transact(self, request: Json) -> str | None:
        """The cause of a cancellation, `timeout`, or None after a write."""
        same = self._sent.setdefault(request["token"], request)
        assert request == same, "DynamoDB would raise IdempotentParameterMismatchException"
        happens = next(self._sendings, None)
        if happens == "timeout":
            self._open.append(request)
            return happens
        cause = BUSY if happens == "busy, then the open one lands" else self._write(request)
        while self._open:
            self._write(self._open.pop())
        return cause

    def _write(self, request: Json) -> str | None:
        token, put = request["token"], request["Put"]
        if token in self._done:
            return None
        if put["ExpressionAttributeValues"][":version"] != self.item["version"]:
            return FALSE
        self._done.add(token)
        self.item = put["Item"]
        return None


class Update:
    """Executes the states of an update from its read on; the task adds 1 to the balance."""

    def __init__(self, branch: Scope) -> None:
        self._branch = branch
        self._states = {name.removeprefix("Debit: "): s for name, s in branch.states.items()}
        self._seen: Json = {}
        self._now_ms = 0

    def run(self, account: Account) -> None:
        for number in range(3):
            if self._is_made(account, f"token {number}"):
                return
        pytest.fail("no try came through")

    def _is_made(self, account: Account, token: str) -> bool:
        """Reads, computes and writes; a conflict ends the try."""
        read, write = self._states["Read"], self._states["Write"]
        states = read_states(account.item)
        output = evaluate(read["Output"], states=states)
        assign = read["Assign"][self._branch.variable]
        seen = {name: evaluate(assign[name], states=states) for name in ("next", "unchanged")}
        self._seen = {"key": {"account": {"S": "anna"}}, "token": token, **seen}
        balance = str(int(output["item"]["balance"]["N"]) + 1)
        given = {"input": {**output["item"], "balance": {"N": balance}}}
        timeouts, _ = handling(write, "States.Timeout")
        while True:
            [transaction] = write["Arguments"]["TransactItems"]
            request = evaluate(transaction, **self._at(states=given))
            self._now_ms += 1000
            cause = account.transact({**request, "token": self._seen["token"]})
            if cause is None:
                return True
            if cause == "timeout":
                timeouts -= 1
                assert timeouts >= 0
                continue
            then = self.cancelled(cause, now_ms=self._now_ms).removeprefix("Debit: ")
            if then == "Conflict":
                error = evaluate(self._states[then]["Error"], **self._at(states=given))
                assert error == f"VersionConflict.{self._branch.variable}"
                return False
            assert self._states[then]["Next"] == "Debit: Write"

    def cancelled(self, cause: str, *, now_ms: int) -> str:
        """The state after a cancellation."""
        self._now_ms = now_ms
        [rule] = self._states["Write"]["Catch"]
        assert (rule["ErrorEquals"], rule["Output"]) == ([CANCELLED], "{% $states.input %}")
        states = {"errorOutput": {"Error": CANCELLED, "Cause": cause}}
        self._seen = evaluate(rule["Assign"][self._branch.variable], **self._at(states=states))
        return self._branch.chosen(rule["Next"], **self._at())

    def pause(self, *, now_ms: int, drawn: float) -> int:
        self._now_ms = now_ms
        seconds = self._states["Wait"]["Seconds"]
        return int(evaluate(seconds, **self._at(functions={"random": lambda: drawn})))

    def _at(self, **given: Any) -> Json:  # noqa: ANN401 - for `evaluate`
        """What is known when a state is entered."""
        return {"variables": {self._branch.variable: self._seen}, "now_ms": self._now_ms, **given}


LATE = ("timeout", "busy, then the open one lands")


def test_a_write_that_lands_late_is_not_made_twice(branch: Scope) -> None:
    account = Account(*LATE)
    Update(branch).run(account)
    assert (account.item["balance"], account.item["version"]) == ({"N": "1"}, {"N": "8"})


def test_it_would_be_if_each_cancellation_led_to_another_read(branch: Scope) -> None:
    states = copy.deepcopy(dict(branch.states))
    states["Debit: In passing?"]["Choices"][0]["Next"] = "Debit: Conflict"
    states["Debit: Conflict"]["Error"] = f"{{% 'VersionConflict.{branch.variable}' %}}"
    account = Account(*LATE)
    Update(Scope(states, branch.start_at)).run(account)
    assert account.item["balance"] == {"N": "2"}


# Items as nested, and with texts as odd, as DynamoDB allows are translated within AWS's bounds.

Value = dict[str, Any]

MOST_LEVELS = 32
"""Of nesting, says the DynamoDB developer guide. The attribute itself is the first."""
MEASURED_DEPTH = 16
"""Of the deepest evaluation here."""

SEEN: Value = {"key": {}, "token": "t", "next": "8", "unchanged": {}}
STAMPS: Value = {"version": {"N": "8"}, "version_id": {"S": "t"}}
EXPRESSIONS = VersionedExpressions(variable="$seen", key_name="account", version="version")


def read(item: Value, *, deepest: int = DEEPEST_ON_AWS) -> object:
    """The item as the task gets it."""
    states = {"input": {}, "result": {"Item": as_java(item)}}
    return evaluate(EXPRESSIONS.read_output(), states=states, deepest=deepest)["item"]


def written(item: Value, *, deepest: int = DEEPEST_ON_AWS) -> object:
    """The item as Step Functions gets it from the task."""
    transaction = evaluate(
        EXPRESSIONS.transaction(table_name="accounts"),
        states={"input": item},
        variables={"seen": SEEN},
        deepest=deepest,
    )
    return transaction["Put"]["Item"]


def nested(levels: int) -> Value:
    """An item with lists and maps in turns, at the bottom of which is a type to translate."""
    value: Value = {"BOOL": True}
    for level in range(levels - 1):
        value = {"L": [value]} if level % 2 else {"M": {"inner": value}}
    return {"outer": value}


def test_however_deeply_an_item_is_nested_the_evaluation_is_as_deep() -> None:
    for levels in (1, MOST_LEVELS):
        item = nested(levels)
        assert read(item, deepest=MEASURED_DEPTH) == item
        assert written(item, deepest=MEASURED_DEPTH) == {**as_java(item), **STAMPS}
    with pytest.raises(TooDeepError):
        written(nested(1), deepest=MEASURED_DEPTH - 1)


ODD = ('"BOOL":true', '"Bool":true', '\\"SS":[', '"', "\\", "$1", "\0", "ä\u2028", *SPELLED)
"""Names and texts that look like a type, or like what replaces one."""


def values(text: str) -> Iterator[Value]:
    """One of each type with a text, those of Java's spelling as names of attributes."""
    yield from ({"S": text}, {"N": "7"}, {"BOOL": True}, {"BOOL": False}, {"NULL": True})
    yield from ({kind: [text, "x"]} for kind in ("SS", "BS", "NS"))
    yield from ({"L": []}, {"M": {}}, {"L": [{"BOOL": True}, {"S": text}, {"L": [{"NULL": True}]}]})
    yield {"M": {text: {"BOOL": False}, **{name: {"S": text} for name in SPELLED.values()}}}


def is_translated(item: Value) -> bool:
    return read(item) == item and written(item) == {**as_java(item), **STAMPS}


@pytest.mark.parametrize("text", ODD, ids=repr)
def test_whatever_the_names_and_texts_only_types_are_spelled_again(text: str) -> None:
    for value in values(text):
        assert is_translated({text: value, "plain": value}), value


def test_a_careless_translation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled = optimistic_update._TO_JAVA  # noqa: SLF001 - what is broken here
    ways: list[tuple[dict[str, str], Value]] = [
        ({'/"BOOL":/': '"Bool":'}, {"BOOL": {"S": "x"}}),
        ({r"/BOOL(\W+)true/": "Bool$1true"}, {"a": {"S": '"BOOL":true'}}),
    ]
    for careless, item in ways:
        monkeypatch.setattr(optimistic_update, "_TO_JAVA", spelled)
        assert is_translated(item)
        monkeypatch.setattr(optimistic_update, "_TO_JAVA", {**spelled, **careless})
        assert not is_translated(item)
