"""Locks inside each other and beside each other, in one execution."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration, MapConfig, NestingType, ParallelConfig
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestResult
from botocore.exceptions import ReadTimeoutError

from fairlock.durable import DurableLock, LockFunctions, hold, lock_functions
from fairlock.durable.lock_functions import error_named, text_of
from fairlock.errors import (
    InvalidRequest,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from lambdas.runtime import InvalidRequest as InvalidRequestOfAFunction
from tests.support import acquire
from tests.support.faulty_table import client_error
from tests.unit.durable.service import LOCK, Service, holding, result_of

A_SECOND = Duration.from_seconds(1)


def test_two_holds_nest() -> None:
    service, held = Service(), list[Any]()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, "outer", service=service), hold(context, "inner", service=service):
            context.wait(A_SECOND)
            context.step(
                lambda _: held.append([service.state("outer").held, service.state("inner").held]),
                name="count",
            )

    assert result_of(body, service).error is None
    assert held == [[1, 1]]
    assert [service.state("outer").held, service.state("inner").held] == [0, 0]


def test_one_lock_held_twice_in_a_row_is_acquired_twice() -> None:
    service = Service()
    body = holding(service, lambda _, lock: lock.fencing_token)
    twice = result_of(lambda event, context: [body(event, context) for _ in range(2)], service)
    first, second = map(int, str(twice.result).strip("[]").split(","))
    assert second == first + 1


Inside = Callable[[DurableContext], None]
Place = Callable[[DurableContext, Any], Any]
NESTED, FLAT = (ParallelConfig(nesting_type=kind) for kind in NestingType)
AROUND: dict[str, Place] = {
    "the root": lambda context, outer: outer(context),
    "a child": lambda context, outer: context.run_in_child_context(outer),
    "a nested branch": lambda context, outer: context.parallel([outer, outer], config=NESTED),
    "a flat branch": lambda context, outer: context.parallel([outer, outer], config=FLAT),
    "an iteration": lambda context, outer: context.map([0, 1], lambda child, *_: outer(child)),
}
BELOW: dict[str, Place] = {
    "itself": lambda context, inner: inner(context),
    "a child": lambda context, inner: context.run_in_child_context(inner),
    "a grandchild": lambda context, inner: context.run_in_child_context(
        lambda child: child.run_in_child_context(inner)
    ),
    "a nested branch": lambda context, inner: context.parallel([inner], config=NESTED),
    "a flat branch": lambda context, inner: context.parallel([inner], config=FLAT),
}


def result_at(place: Place, work: Inside, service: Service) -> DurableFunctionTestResult:
    """What an execution ends with that works at a place; it returns nothing."""

    def body(_event: object, context: DurableContext) -> None:
        place(context, work)

    return result_of(body, service)


@pytest.mark.parametrize("how", [{"max_wait": 60}, {"skip": True}], ids=str)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("around", AROUND)
def test_a_lock_inside_itself_is_an_error_at_once_wherever_that_is_and_its_sibling_waits(
    around: str, below: str, how: dict[str, Any]
) -> None:
    """Also of one that would not wait: it would be skipped for ever."""
    service, told, holders = Service(), list[str](), list[tuple[str, list[str]]]()

    def inner(context: DurableContext) -> None:
        try:
            holding(service, **how)(None, context)
            told.append("it is held twice")
        except (InvalidRequest, LockWaitTimeout) as error:
            told.append(str(error))

    def work(context: DurableContext, lock: DurableLock) -> None:
        def note(_: object) -> None:
            holders.append((lock.owner_id, [h.owner_id for h in service.state(LOCK).holders]))

        context.wait(A_SECOND)
        context.step(note, name="note")
        BELOW[below](context, inner)

    body = holding(service, work)

    def outer(context: DurableContext) -> None:
        body(None, context)

    assert result_at(AROUND[around], outer, service).error is None
    [message] = set(told)
    assert "it would wait for itself" in message
    assert all([owner_id] == found for owner_id, found in holders)
    siblings = 1 if around in {"the root", "a child"} else 2
    assert len({owner_id for owner_id, _ in holders}) == siblings
    assert service.state(LOCK).held == 0


def test_a_hold_that_is_entered_again_releases_what_it_has_acquired_last() -> None:
    service, others = Service(), iter([None, acquire("anna", lock_name=LOCK)])

    def body(_event: object, context: DurableContext) -> list[bool]:
        once, got = hold(context, LOCK, service=service, skip=True), []
        for _ in range(2):
            if (other := next(others)) is not None:
                service.store().acquire(other)
            with once as lock:
                got.append(lock is not None)
        return got

    assert result_of(body, service).result == "[true, false]"
    assert [name for name, _ in service.calls] == ["acquire", "release", "acquire"]


def _deploys(service: Service, place: Place, *, version: bool | int = 7) -> list[str]:
    """What the callers of one lock, who ask for the newest only, are told."""
    messages = list[str]()

    def deploy(context: DurableContext, *_: object) -> None:
        try:
            holding(service, only_newest=version)(None, context)
            messages.append("ran")
        except InvalidRequest as error:
            messages.append(str(error))

    assert result_at(place, deploy, service).error is None
    return messages


def in_a_map(kind: NestingType) -> Place:
    config: MapConfig[int] = MapConfig(nesting_type=kind)
    return lambda context, deploy: context.map([0, 1], deploy, config=config)


MAPS: dict[str, Place] = {
    **{kind.name: in_a_map(kind) for kind in NestingType},
    "below": lambda context, deploy: context.map(
        [0, 1], lambda child, *_: child.run_in_child_context(deploy, name="deploy")
    ),
    "parallel": lambda context, deploy: context.map(
        [0], lambda child, *_: child.parallel([deploy, deploy])
    ),
}


@pytest.mark.parametrize("version", [True, 7])
@pytest.mark.parametrize("place", MAPS)
def test_the_newest_only_is_refused_in_a_map(place: str, *, version: bool | int) -> None:
    service = Service()
    [message] = set(_deploys(service, MAPS[place], version=version))
    assert message == (
        "only_newest: must be left out inside of context.map, whose iterations would supersede "
        "each other: hold the lock around the map, or give each item an execution of its own by "
        f"context.invoke (got {version})"
    )
    assert not service.calls, "nothing was asked of the service"


def test_the_newest_only_works_around_a_map_and_in_branches() -> None:
    def beside_a_map(context: DurableContext, deploy: Inside) -> None:
        context.map([0, 1], lambda child, *_: child.step(lambda _: 0, name="other"))
        context.run_in_child_context(deploy, name="deploy")
        context.parallel([deploy])

    assert _deploys(Service(), beside_a_map) == ["ran", "ran"]


# How the functions of the service are invoked, and what their errors become.

REQUEST = {"lock_name": "a", "owner_id": "o" * 16}


@dataclass
class Functions:
    """Replaces a Lambda client."""

    answer: Any = field(default_factory=dict)
    failed: bool = False
    raises: Exception | None = None
    invoked: list[tuple[str, Any]] = field(default_factory=list)

    def invoke(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        self.invoked.append((request["FunctionName"], json.loads(request["Payload"])))
        if self.raises is not None:
            raise self.raises
        payload = io.BytesIO(json.dumps(self.answer).encode())
        return {"Payload": payload} | ({"FunctionError": "Unhandled"} if self.failed else {})


def over(functions: Functions) -> LockFunctions:
    client: Any = functions
    return LockFunctions("acquire-arn", "release-arn", client)


def failure(kind: str, message: str) -> Functions:
    return Functions({"errorType": kind, "errorMessage": message}, failed=True)


def test_each_call_invokes_its_function() -> None:
    functions = Functions({"acquired": True})
    assert over(functions).acquire(REQUEST) == {"acquired": True}
    over(functions).release(REQUEST)
    assert functions.invoked == [("acquire-arn", REQUEST), ("release-arn", REQUEST)]


@pytest.mark.parametrize(
    "original",
    [
        InvalidRequest(field="limit", rule="must be at most 78 (with these texts)", value=99),
        InvalidRequest(field="reason", rule="must not end with: this (got it)", value="x (got y)"),
        InvalidRequest(field="owner_id", rule="is required", missing=True),
        InvalidRequest(field="data", rule="must be small", value="a\nb\u2028 {}"),
    ],
    ids=["number", "text like a rule", "missing", "line ends"],
)
def test_an_invalid_request_has_its_field_rule_value_and_text(original: InvalidRequest) -> None:
    """Read as data: a text for people cannot be taken apart again, as the second one shows."""
    reported = InvalidRequestOfAFunction(original)
    with pytest.raises(InvalidRequest) as caught:
        over(failure("InvalidRequest", str(reported))).acquire(REQUEST)
    found = caught.value
    assert (found.field, found.rule, found.value) == (original.field, original.rule, original.value)
    assert str(found) == str(original)
    assert error_named("InvalidRequest", text_of(found)).args == original.args


@pytest.mark.parametrize("text", ["", "limit: 7", "limit\n{}", 'limit\n{"field": 1}', "a\n[]"])
def test_an_invalid_request_without_data_is_one_all_the_same(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        over(failure("InvalidRequest", text)).acquire(REQUEST)
    assert (caught.value.field, caught.value.rule, str(caught.value)) == ("request", text, text)


NO_CURE, UNKNOWN = LockStoreMisconfigured, LockStoreUnavailable
FAILED: dict[str, tuple[Functions, type[Exception], str]] = {
    "LockStoreMisconfigured": (failure("LockStoreMisconfigured", "as said"), NO_CURE, "as said"),
    "LockItemMalformed": (failure("LockItemMalformed", "as said"), NO_CURE, "as said"),
    **{
        kind: (failure(kind, "x"), UNKNOWN, ".")
        for kind in ("LockStoreUnavailable", "Sandbox.Timedout", "Runtime.ExitError", "New")
    },
    **{
        code: (Functions(raises=client_error(code)), NO_CURE, "acquire-arn")
        for code in (
            "AccessDeniedException",
            "ResourceNotFoundException",
            "UnrecognizedClientException",
        )
    },
    "throttled": (Functions(raises=client_error("TooManyRequestsException", 429)), UNKNOWN, "."),
    "5xx": (Functions(raises=client_error("ServiceException", 500)), UNKNOWN, "."),
    "no reply": (Functions(raises=ReadTimeoutError(endpoint_url="https://lambda")), UNKNOWN, "."),
}


@pytest.mark.parametrize("kind", FAILED)
def test_what_no_repeat_cures_is_misconfigured_and_all_else_an_unknown_outcome(kind: str) -> None:
    functions, error, told = FAILED[kind]
    with pytest.raises(error, match=told) as caught:
        over(functions).acquire(REQUEST)
    if told == "acquire-arn":
        assert isinstance(caught.value, LockStoreMisconfigured)
        assert caught.value.code == kind


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLOCK_ACQUIRE_FUNCTION", "a")
    monkeypatch.setenv("FAIRLOCK_RELEASE_FUNCTION", "r")
    assert LockFunctions.from_environment() == LockFunctions("a", "r")


def test_a_missing_service_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLOCK_ACQUIRE_FUNCTION", raising=False)
    with pytest.raises(LockStoreMisconfigured, match="grant_durable"):
        LockFunctions.from_environment()


def test_a_repeat_is_never_hidden_in_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that boto3 repeats may be answered "not held" though it has released."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = lock_functions._default_client.__wrapped__()  # noqa: SLF001 - its private client
    config: Any = client.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout > 20  # the functions' own timeout
    client.close()
