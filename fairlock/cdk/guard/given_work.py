"""The work that a user gives as JSON: checked, and put where the guard has its placeholder."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from fairlock.cdk.machine_definitions import Placement, read_definition
from fairlock.errors import InvalidRequest

Json = dict[str, Any]

PLACEHOLDER: Final = "The work of the guard"
"""The name of the state in whose place the work is put."""

_LEADS_ON: Final = ("Next", "Catch", "Choices", "Default")
_MADE_BY_THE_GUARD: Final = ("Next", "Catch", "End")


def as_machine(work: object) -> Json:
    """A machine as it is, and a state as a machine.

    Raises:
        InvalidRequest: it is neither, or the state leads to others.
    """
    states = work.get("States") if isinstance(work, dict) else None
    if isinstance(work, dict) and isinstance(states, dict) and str(work.get("StartAt")) in states:
        return copy.deepcopy(work)
    if not isinstance(work, dict) or not isinstance(work.get("Type"), str):
        rule = "must be a state, with its Type, or a machine, with StartAt and States"
        raise InvalidRequest(field="task", rule=rule, value=work)
    led_on = [field for field in _LEADS_ON if field in work]
    if led_on:
        rule = "must not lead to other states: give them too, in a machine with StartAt and States"
        raise InvalidRequest(field="task", rule=rule, value=", ".join(led_on))
    ends = {} if work["Type"] in {"Succeed", "Fail"} else {"End": True}
    return {"StartAt": "Work", "States": {"Work": {**work, **ends}}}


def is_bare_task(machine: Json) -> bool:
    """Whether the work is one Task state, which the guard leads on and catches the errors of."""
    [first, *more] = machine["States"].values()
    is_task = isinstance(first, dict) and first.get("Type") == "Task"
    return is_task and not more and not any(field in first for field in _LEADS_ON)


def names_in(machine: Json) -> set[str]:
    """The names of all states.

    Raises:
        InvalidRequest: a part of the machine has no states.
    """
    return {name for scope in _scopes(machine) for name in scope["States"]}


def require_other_names(own: set[str], others: set[str]) -> None:
    """Checks that no state of the work has the name of one of the guard's."""
    if own & others:
        rule = "must have other names for its states than the guard; or give the guard another name"
        raise InvalidRequest(field="task", rule=rule, value=", ".join(sorted(own & others)))


def require_evaluated(made: Json, variable: str) -> None:
    """Checks that the guarded machine reads variables where they exist and are evaluated.

    Those are this guard's, and those of guards that the work brings along.

    Raises:
        InvalidRequest: names the state that would hand on the text, or fail.
    """
    found = read_definition(made, Placement(machine="", express=False, around=frozenset()))
    for use in [*found.undefined, *found.as_text]:
        rule = (
            f"must read the fencing token as '{{% ${variable}.fencing_token %}}' in a JSONata "
            f"state, and as 'token.$': '${variable}.fencing_token' in a JSONPath state: anything "
            "else is handed on as text, or fails; children of a Distributed Map get it by its "
            "ItemSelector"
        )
        raise InvalidRequest(field="task", rule=rule, value=f"the state {use.state}")


def put_in(made: Json, machine: Json, *, bare: bool) -> None:
    """Puts the work where its placeholder is: a bare task in its place, all else in a branch."""
    for scope in _scopes(made):
        rendered = scope["States"].get(PLACEHOLDER)
        if rendered is None:
            continue
        if not bare:
            scope.clear()
            scope.update(StartAt=machine["StartAt"], States=machine["States"])
            return
        [(name, task)] = machine["States"].items()
        own = {key: value for key, value in task.items() if key not in _MADE_BY_THE_GUARD}
        added = {key: rendered[key] for key in _MADE_BY_THE_GUARD if key in rendered}
        states = {**scope["States"], name: {**own, **added}}
        del states[PLACEHOLDER]
        scope["States"] = states
        _rename(scope, PLACEHOLDER, name)
        return


def _rename(scope: Json, old: str, new: str) -> None:
    """Follows a state that has another name now."""
    places = [scope, *scope["States"].values()]
    places += [rule for state in scope["States"].values() for rule in state.get("Choices", ())]
    for place in places:
        for field in ("StartAt", "Next", "Default"):
            if place.get(field) == old:
                place[field] = new


def _scopes(made: Any) -> Iterator[Json]:  # noqa: ANN401 - what a user has written
    """The machine, its branches and the bodies of its Maps.

    Raises:
        InvalidRequest: one of them is none.
    """
    states = made.get("States") if isinstance(made, dict) else None
    if not isinstance(states, dict) or not all(isinstance(one, dict) for one in states.values()):
        rule = "must have an object with States wherever a machine, a branch or a Map begins"
        raise InvalidRequest(field="task", rule=rule, value=made)
    yield made
    for state in list(states.values()):
        branches = state.get("Branches", [])
        yield from (
            scope
            for body in (branches if isinstance(branches, list) else [branches])
            for scope in _scopes(body)
        )
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from _scopes(state[field])
