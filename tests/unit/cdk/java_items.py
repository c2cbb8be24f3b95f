"""How Step Functions spells the types of an item: an independent translation."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SPELLED = {"BOOL": "Bool", "NULL": "Nul", "SS": "Ss", "NS": "Ns", "BS": "Bs"}


def as_java(item: Json) -> Json:
    """Of the types only, not of attributes of the same name."""
    return {name: _value_as_java(value) for name, value in item.items()}


def _value_as_java(value: Json) -> Json:
    [(kind, inner)] = value.items()
    if kind == "L":
        return {"L": [_value_as_java(element) for element in inner]}
    if kind == "M":
        return {"M": as_java(inner)}
    return {SPELLED.get(kind, kind): inner}
