"""The JSONata of the guard's states, as the package `jsonata-python` evaluates it.

Each expression is parsed once. Step Functions has more functions than the language (`$parse`), and
its own `$uuid` and `$millis`, which come with the variables.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonata.jsonata import Jsonata  # type: ignore[import-untyped]  # it ships no types


class EvaluationError(Exception):
    """Step Functions fails the state with States.QueryEvaluationError."""


@cache
def _parsed(text: str) -> Jsonata:
    """Within an object: it tells null from nothing, as a field that leads nowhere is left out."""
    expression = Jsonata(f'{{"value": ({text})}}')
    expression.register_lambda("parse", json.loads)
    return expression


def _value(text: str, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    bound = {
        name.removeprefix("$"): Jsonata.JLambda(value) if callable(value) else value
        for name, value in values.items()
    }
    try:
        found: dict[str, Any] = _parsed(text).evaluate(None, bound)
    except Exception as error:
        raise EvaluationError(str(error)) from error
    if not found:
        message = f"{text} returned nothing"
        raise EvaluationError(message)
    return found["value"]


def evaluate(template: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """A field of a state: its expressions replaced by their values.

    Raises:
        EvaluationError: an expression fails, or leads nowhere.
    """
    if isinstance(template, str):
        if not (template.startswith("{%") and template.endswith("%}")):
            return template
        return _value(template[2:-2], values)
    if isinstance(template, dict):
        return {name: evaluate(part, values) for name, part in template.items()}
    if isinstance(template, list):
        return [evaluate(part, values) for part in template]
    return template
