"""No late write does harm, but for known limits; a protocol that lacks a protection is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from fairlock.protocol.admission import LEFT_LAST
from fairlock.testing.interpreter import placeholders
from tests.histories.census import run_census
from tests.histories.late_network import Mutation

RUNS: Final = 60
MOST_RUNS: Final = 400
"""Of a control; a protocol that changes is found by other runs."""
_LEFT_LAST: Final = (
    r" AND \(attribute_not_exists\(#released_at\) OR #released_at <= :(released_at|late_limit)\)"
)
_NOT_OUTDATED: Final = (
    r" AND \(attribute_not_exists\(#released_at\) OR #released_at <= :outdated_at\)"
)


def without(pattern: str, replacement: str = "", *, only: str = "") -> Mutation:
    """Edits the conditions of the writes that functions make whose names match `only`."""

    def edited(write: Mapping[str, Any]) -> dict[str, Any]:
        condition = re.sub(pattern, replacement, write.get("ConditionExpression", ""))
        used = placeholders(write.get("UpdateExpression", ""), condition)
        values = write.get("ExpressionAttributeValues", {})
        names = write.get("ExpressionAttributeNames", {})
        changed = {**write, "ConditionExpression": condition}
        if names:
            changed["ExpressionAttributeNames"] = {n: v for n, v in names.items() if n in used}
        if values:
            changed["ExpressionAttributeValues"] = {n: v for n, v in values.items() if n in used}
        return changed

    def mutate(name: str, request: dict[str, Any]) -> dict[str, Any]:
        if not re.fullmatch(only or ".*", name):
            return request
        if "TransactItems" not in request:
            return edited(request)
        writes = [
            {kind: edited(write) for kind, write in item.items()}
            for item in request["TransactItems"]
        ]
        return {**request, "TransactItems": writes}

    return mutate


def unchecked(_name: str, request: dict[str, Any]) -> dict[str, Any]:
    """The reaper's release with a check of its claim that always holds."""
    anything = "attribute_exists(pk) OR attribute_not_exists(pk)"
    writes = [
        {"ConditionCheck": {**_plain(write["ConditionCheck"]), "ConditionExpression": anything}}
        if "ConditionCheck" in write
        else write
        for write in request.get("TransactItems", ())
    ]
    return {**request, "TransactItems": writes} if writes else request


def _plain(check: Mapping[str, Any]) -> dict[str, Any]:
    given = ("ExpressionAttributeNames", "ExpressionAttributeValues")
    return {name: value for name, value in check.items() if name not in given}


@dataclass(frozen=True)
class Control:
    """A protection that is switched off.

    Attributes:
        patch: where the protection is, if it is no condition of a write, and what replaces it.
        shows: the beginning of a violation that it leads to.
        first: the seed of the first run that is tried; today it is found by that.
        only_keep_alive: which callers the runs have.
        with_turns: whether there are operators, and callers that ask for the newest only.
    """

    mutate: Mutation | None
    shows: str
    patch: tuple[str, object] | None = None
    first: int = 0
    only_keep_alive: bool = False
    with_turns: bool = False


CONTROLS: Final = {
    "a renewal that moves the end back": Control(
        without(r"#mine\.#h_expires_at_ms <= :expires_at_ms", "attribute_exists(#mine)"),
        "the end of a lease moves back",
    ),
    "an eviction of any grant": Control(
        without(r" AND #over_token\d+ = :seen_grant"),
        "a working holder is removed",
        first=268,
    ),
    "an acquire that may be outdated": Control(
        without(_NOT_OUTDATED, only="acquire_permit"),
        "granted to an owner that is over",
        first=1,
    ),
    "a join that may be outdated": Control(
        without(_NOT_OUTDATED, only="join_queue"),
        "a place for an owner that is over",
        first=44,
    ),
    "a join of an older call": Control(
        without(r"#asked_at_ms <= :asked_at", "attribute_exists(#asked_at_ms)", only="join_queue"),
        "an older task token over a newer",
        first=26,
    ),
    "a departure that forgets a later one": Control(
        without(_LEFT_LAST),
        "the time of the last departure moves back",
        first=1,
    ),
    "a queue that is closed though others have joined": Control(
        without(
            r"#wait_seq = :wait_seq",
            "attribute_exists(#wait_seq)",
            only="close_queue|leave_without_successor",
        ),
        "the lock is open while an owner waits",
        first=21,
    ),
    "a dead waiter that is removed though it has asked again": Control(
        without(
            r"#expires_at_ms = :seen_expires_at_ms",
            "attribute_exists(#expires_at_ms)",
            only="clear_waiters",
        ),
        "a waiter is forgotten",
        first=54,
    ),
    "a release by the reaper without its claim": Control(
        unchecked,
        "a working holder is removed by release_permit (late)",
        only_keep_alive=True,
        first=110,
    ),
    "a lock taken again without room": Control(
        None,
        "more holders than a limit allows",
        patch=("fairlock.store.keep_alive._may_retake", lambda *_: True),
        first=231_027,
    ),
    "a call that stalls and goes on as the newest": Control(
        None,
        "an older task token over a newer",
        patch=("fairlock.store.queue.SLACK_MS", 3_600_000),
        first=42,
    ),
    "a waiter that leaves by an earlier time": Control(
        None,
        "the time of the last departure moves back by mark_given_up",
        patch=("fairlock.protocol.waiters.LEFT_LAST_OF_ALL", LEFT_LAST),
        first=20,
    ),
    "a claim that goes back a stage": Control(
        without(
            r" AND \(attribute_not_exists\(#fenced\) OR #fenced <= :stage\)",
            only="fence_claim|advance_claim",
        ),
        "the stage of a claim goes back",
        only_keep_alive=True,
    ),
    "an acquire that asks for no ceiling": Control(
        without(r" AND attribute_not_exists\(#ceiling\)", only="acquire_permit"),
        "granted above the ceiling",
        with_turns=True,
    ),
    "a change of a ceiling that may be late": Control(
        without(r"#last_ceiling\.#change = :seen_change", "attribute_exists(#last_ceiling)"),
        "an older ceiling over a newer",
        with_turns=True,
    ),
    "an acquire of any version": Control(
        without(r" AND \(attribute_not_exists\(#newest\) OR #newest <= :version\)"),
        "granted to an older version than one that ran",
        with_turns=True,
    ),
}


@pytest.mark.parametrize("with_turns", [False, True])
def test_no_late_write_does_harm(
    record_property: Callable[[str, object], None],
    with_turns: bool,  # noqa: FBT001 - a case
) -> None:
    census = run_census(RUNS, with_turns=with_turns)
    assert not census.violations, list(census.lines())
    assert census.landings.late.total() > 10 * RUNS
    record_property("figures", f"census: {next(census.lines())}")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_protection_that_is_missing_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control = CONTROLS[name]
    if control.patch is not None:
        monkeypatch.setattr(*control.patch)
    census = run_census(
        MOST_RUNS,
        first=control.first,
        until_found=True,
        mutate=control.mutate,
        only_keep_alive=control.only_keep_alive,
        with_turns=control.with_turns,
    )
    assert any(what.startswith(control.shows) for what in census.violations), census.violations
