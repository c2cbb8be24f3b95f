"""From an execution's history to facts. Pure: events in, records out."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from examples.demo.facts import Call, Execution, Role

CLOSING_EVENTS = frozenset({"TaskSucceeded", "TaskFailed", "TaskTimedOut"})
STATUS_OF_LAST_EVENT = {
    "ExecutionSucceeded": "SUCCEEDED",
    "ExecutionFailed": "FAILED",
    "ExecutionAborted": "ABORTED",
    "ExecutionTimedOut": "TIMED_OUT",
}


def roles_of_states(
    definition: Mapping[str, Any], functions: Mapping[Role, str]
) -> dict[str, Role]:
    """Which state calls which function, read from the deployed definition.

    Args:
        definition: the state machine in the Amazon States Language.
        functions: the name of each function.
    """
    roles = {name: role for role, name in functions.items()}
    found = {}
    for state_name, state in _states(definition):
        target = state.get("Arguments", {}).get("FunctionName", "")
        # A plain name, an ARN or an ARN with a version: the name stands behind ":function:".
        name = str(target).rsplit(":function:", 1)[-1].split(":", 1)[0]
        if name in roles:
            found[state_name] = roles[name]
    return found


def execution_from_history(
    *,
    name: str,
    account_id: str,
    events: Sequence[Mapping[str, Any]],
    roles: Mapping[str, Role],
) -> Execution:
    """Read one execution.

    A history of an execution that still runs has status RUNNING and ends with its last event.
    """
    last = events[-1]
    return Execution(
        name=name,
        account_id=account_id,
        status=STATUS_OF_LAST_EVENT.get(last["type"], "RUNNING"),
        error=_details(last).get("error") or None,
        started_at_ms=_epoch_ms(events[0]["timestamp"]),
        ended_at_ms=_epoch_ms(last["timestamp"]),
        calls=tuple(_calls(events, roles)),
        transitions=_transitions(events),
    )


def _states(definition: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, state in definition.get("States", {}).items():
        yield name, state
        for inner in (*state.get("Branches", ()), state.get("ItemProcessor", {})):
            yield from _states(inner)


def _calls(events: Iterable[Mapping[str, Any]], roles: Mapping[str, Role]) -> Iterator[Call]:
    state_name = ""
    call: Call | None = None
    for event in events:
        kind = event["type"]
        if kind.endswith("StateEntered"):
            state_name = _details(event)["name"]
        elif kind == "TaskScheduled":
            call = Call(role=roles.get(state_name), asked_at_ms=_epoch_ms(event["timestamp"]))
        elif kind in CLOSING_EVENTS and call is not None:
            yield _answered(call, event)
            call = None
    if call is not None:
        yield call


def _answered(call: Call, event: Mapping[str, Any]) -> Call:
    details = _details(event)
    at_ms = _epoch_ms(event["timestamp"])
    if not event["type"].endswith("Succeeded"):
        return replace(call, answered_at_ms=at_ms, error=details.get("error") or "States.Timeout")
    answer = json.loads(details["output"])
    answer = answer.get("Payload", answer)  # A callback is answered without it.
    if "acquired_at" in answer:
        answer["acquired_at_ms"] = _epoch_ms(datetime.fromisoformat(answer["acquired_at"]))
    return replace(call, answered_at_ms=at_ms, answer=answer)


def _transitions(events: Iterable[Mapping[str, Any]]) -> int:
    """States entered, and one more for every retry: that is what is billed."""
    transitions, first_try = 0, False
    for event in events:
        if event["type"].endswith("StateEntered"):
            transitions += 1
            first_try = True
        elif event["type"] == "TaskScheduled":
            transitions += not first_try
            first_try = False
    return transitions


def _details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in event.items():
        if key.endswith("EventDetails"):
            details: Mapping[str, Any] = value
            return details
    return {}


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
