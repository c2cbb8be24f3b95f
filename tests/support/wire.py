"""A network that holds writes back, or copies them, and lets them land after everything else."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.claims import write_claim
from fairlock.protocol.table_requests import Update
from tests.support.faulty_table import ENDPOINT, WRITES
from tests.support.operations import Operations
from tests.support.store_bench import Bench

_TRUE = "attribute_not_exists(#no_such)"
_PLACEHOLDER = re.compile(r"[#:]\w+")


@dataclass
class Wire:
    """Passes requests on; holds back or copies the first write that has a text in its expressions.

    Attributes:
        held_back: whether that write only stays here, and its sender sees a time-out; else it
            happens, and a copy stays here.
        late: the write, once it was sent.
    """

    inner: Any
    text: str
    held_back: bool = False
    late: tuple[str, dict[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name not in WRITES:
            return attribute

        def call(**request: Any) -> Any:  # noqa: ANN401 - same
            if self.late is None and any(self.text in _expressions(w) for w in _writes(request)):
                self.late = name, copy.deepcopy(request)
                if self.held_back:
                    raise ReadTimeoutError(endpoint_url=ENDPOINT)
            return attribute(**request)

        return call

    def land(self, *, without: tuple[str, ...] = ()) -> bool:
        """Lets the write land; tells whether it was written.

        Args:
            without: conditions that are taken out of it before.
        """
        assert self.late is not None, f"no write had {self.text!r}"
        name, request = self.late
        request = copy.deepcopy(request)
        request.pop("ClientRequestToken", None)  # DynamoDB forgets it after ten minutes.
        for condition in without:
            found = [w for w in _writes(request) if condition in w["ConditionExpression"]]
            assert found, f"{condition!r} is in no condition"
            for write in found:
                _take_out(write, condition)
        try:
            getattr(self.inner, name)(**request)
        except ClientError:
            return False
        return True


def _writes(request: dict[str, Any]) -> list[dict[str, Any]]:
    if "TransactItems" in request:
        return [write for item in request["TransactItems"] for write in item.values()]
    return [request]


def _expressions(write: dict[str, Any]) -> str:
    return f"{write.get('UpdateExpression', '')} | {write.get('ConditionExpression', '')}"


def _take_out(write: dict[str, Any], condition: str) -> None:
    write["ConditionExpression"] = write["ConditionExpression"].replace(condition, _TRUE)
    used = set(_PLACEHOLDER.findall(_expressions(write)))
    names = {**write["ExpressionAttributeNames"], "#no_such": "no_such"}
    write["ExpressionAttributeNames"] = {n: a for n, a in names.items() if n in used}
    values = write.get("ExpressionAttributeValues", {})
    write["ExpressionAttributeValues"] = {n: v for n, v in values.items() if n in used}


def late(bench: Bench, text: str, send: Callable[[Operations], object]) -> Wire:
    """The write with this text is held back: its sender gives it up."""
    wire = Wire(bench.client, text, held_back=True)
    with suppress(LockStoreUnavailable):
        send(bench.store(wire))
    return wire


def copied(bench: Bench, text: str, send: Callable[[Operations], object]) -> Wire:
    """The write with this text happens, and a copy of it stays on the wire."""
    wire = Wire(bench.client, text)
    send(bench.store(wire))
    return wire


def claim_whatever_has_ended(*args: Any, **kwargs: Any) -> Update:  # noqa: ANN401 - as `write_claim`
    """For controls: the claim of an acquisition that is over is written again."""
    update, alive = write_claim(*args, **kwargs), "attribute_not_exists(#ended)"
    assert alive in update.condition
    always = f"({alive} OR attribute_exists(#ended))"
    return replace(update, condition=update.condition.replace(alive, always))
