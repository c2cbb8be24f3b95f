"""What the JSON of one state says: where it leads, what it assigns, which variables it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fairlock.cdk.workflow_variable import is_jsonata

Json = Mapping[str, Any]

_VARIABLE: Final = re.compile(r"\$((?:lock|item)_\w+_[0-9a-f]{8})\b")
"""A name that `WorkflowVariable` makes."""
_FENCING_TOKEN: Final = re.compile(_VARIABLE.pattern + r"\.fencing_token\b")
_ASKS_FIRST: Final = ("?", "$exists(")
"""What stands in JSONata that may do without the value."""
_PROCESSORS: Final = ("ItemProcessor", "Iterator")


def bodies(state: Json) -> Iterator[Json]:
    """The branches of a Parallel, or what a Map runs for each item."""
    yield from state.get("Branches", ())
    for name in _PROCESSORS:
        if name in state:
            yield state[name]


def without_bodies(state: Json) -> Json:
    """The state's own fields, without its comment, in which it may name anything."""
    left_out = {"Branches", *_PROCESSORS, "Comment"}
    return {key: value for key, value in state.items() if key not in left_out}


def targets(state: Json) -> Iterator[str]:
    """The states to which it may lead."""
    for rule in (state, *_rules(state)):
        for field in ("Next", "Default"):
            if field in rule:
                yield rule[field]


def assigned(state: Json) -> Iterator[str]:
    """The variables that it assigns."""
    for rule in (state, *_rules(state)):
        for name in rule.get("Assign", {}):
            yield name.removesuffix(".$")


def variables(text: str) -> set[str]:
    """The variables of guards and updates that a text names."""
    return set(_VARIABLE.findall(text))


def variables_of(state: Json) -> set[str]:
    """The variables of guards and updates that its own fields name."""
    return variables(json.dumps(without_bodies(state)))


def variables_as_text(state: Json, *, language: str) -> set[str]:
    """The variables that it names where Step Functions evaluates nothing, and hands on the text.

    In JSONata that is outside of `{% … %}`. In JSONPath it is within `{% … %}`, and in a field
    whose name does not say that its value is a path.
    """
    in_jsonata = state.get("QueryLanguage", language) == "JSONata"
    return {
        variable
        for field, text in _texts(without_bodies(state), "")
        if is_jsonata(text) != in_jsonata or not (in_jsonata or _takes_a_path(field))
        for variable in variables(text)
    }


def tokens_needed(state: Json, *, language: str) -> set[str]:
    """The variables whose fencing token it reads, wherever it cannot do without one.

    JSONata may ask first whether there is one (`$exists`, `? :`), and so may a Choice in JSONPath
    (`IsPresent`). Which of its ways needs the token is not examined then: none of them counts.
    """
    in_jsonata = state.get("QueryLanguage", language) == "JSONata"
    if not in_jsonata and '"IsPresent"' in json.dumps(state.get("Choices", ())):
        return set()
    return {
        variable
        for _, text in _texts(without_bodies(state), "")
        if not (in_jsonata and any(sign in text for sign in _ASKS_FIRST))
        for variable in _FENCING_TOKEN.findall(text)
    }


def _rules(state: Json) -> Sequence[Json]:
    return [*state.get("Catch", ()), *state.get("Choices", ())]


def _takes_a_path(field: str) -> bool:
    return field.endswith((".$", "Path")) or field == "Variable"


def _texts(value: object, field: str) -> Iterator[tuple[str, str]]:
    """Each text in a field, with the name of the innermost field around it."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "Comment":
                yield from _texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, field)
