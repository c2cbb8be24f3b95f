"""The guard's `lock_name`: a literal, JSONata or a JsonPath token, made into a JSONata value."""

from __future__ import annotations

import json
import re
from typing import Final

from aws_cdk import Stack, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.guard.arguments import checked, checked_jsonata
from fairlock.cdk.workflow_variable import is_jsonata, jsonata
from fairlock.errors import InvalidRequest
from fairlock.wire.rules import LOCK_NAME

_NOT_EVALUATED: Final = ("{%", "%}", "$.", "$$", "$states", "States.Format(")
_STEP: Final = r"""\.(?P<name>[A-Za-z_]\w*)|\['(?P<quoted>[^'`]+)'\]|\[(?P<index>\d+)\]"""
_PATH: Final = re.compile(
    r"(?P<root>\$\$|\$[A-Za-z_]\w*|\$)(?P<steps>(?:" + re.sub(r"\?P<\w+>", "", _STEP) + r")*)"
)
_OPERATORS: Final = frozenset({"and", "or", "in", "true", "false", "null", "function"})
_FORMAT: Final = re.compile(r"States\.Format\((?P<arguments>.*)\)")
_QUOTED: Final = re.compile(r"'(?P<text>(?:[^'\\]|\\.)*)'")


def workflow_lock_name(scope: Construct, lock_name: str) -> str:
    """A value for a JSONata state.

    Raises:
        InvalidRequest: the literal is no lock name, or the path has no counterpart in JSONata.
    """
    if is_jsonata(lock_name):
        return checked_jsonata("lock_name", lock_name)
    if not isinstance(lock_name, str):
        return checked("lock_name", LOCK_NAME, lock_name)
    if lock_name.startswith("$") and not Token.is_unresolved(lock_name):
        rule = "must not start with $: write JsonPath.string_at('$.…') or '{% $states.input.… %}'"
        raise InvalidRequest(field="lock_name", rule=rule, value=lock_name)
    _refuse_parts_that_nobody_evaluates(lock_name)
    if Token.is_unresolved(lock_name):
        return _from_token(scope, lock_name)
    return checked("lock_name", LOCK_NAME, lock_name)


def literal_lock_name(lock_name: str) -> str | None:
    """The lock name, if it is known at synth."""
    return None if is_jsonata(lock_name) or Token.is_unresolved(lock_name) else lock_name


def _refuse_parts_that_nobody_evaluates(literal: str) -> None:
    """Step Functions takes such a text as it is: it would be one lock for all customers."""
    found = next((part for part in _NOT_EVALUATED if part in literal), None)
    if found is not None:
        rule = (
            f"must not contain {found}, which nothing evaluates within a literal: "
            "write JSONata as a whole, '{% 'customer/' & $states.input.id %}', "
            "or JsonPath.format('customer/{}', JsonPath.string_at('$.id'))"
        )
        raise InvalidRequest(field="lock_name", rule=rule, value=literal)


def _from_token(scope: Construct, lock_name: str) -> str:
    """A JsonPath token becomes JSONata; any other token is a literal known at deployment."""
    try:
        is_path = sfn.JsonPath.is_encoded_json_path(lock_name)
    except RuntimeError as error:  # how jsii hands over that a path is only a part of the string
        rule = "must be a JsonPath token as a whole: join with JsonPath.format or in JSONata"
        raise InvalidRequest(field="lock_name", rule=rule, value=str(error)) from error
    return jsonata(_translated(str(Stack.of(scope).resolve(lock_name)))) if is_path else lock_name


def _translated(path: str) -> str:
    """`$.a[0]`, `$$.Execution.Name`, `$variable.a` or `States.Format` of such, as JSONata."""
    call = _FORMAT.fullmatch(path)
    translated = _format_call(call["arguments"]) if call else _path(path)
    if translated is None:
        rule = "uses a JSONPath that has no simple counterpart; write it as JSONata, '{% … %}'"
        raise InvalidRequest(field="lock_name", rule=rule, value=path)
    return translated


def _path(path: str) -> str | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    root = {"$": "$states.input", "$$": "$states.context"}.get(match["root"], match["root"])
    return root + "".join(_step(step) for step in re.finditer(_STEP, match["steps"]))


def _step(step: re.Match[str]) -> str:
    if step["index"] is not None:
        return f"[{step['index']}]"
    name = step["name"] or step["quoted"]
    return f".{name}" if name.isidentifier() and name not in _OPERATORS else f".`{name}`"


def _format_call(arguments: str) -> str | None:
    """Concatenation. A missing argument gives no name at all, rather than one that many share."""
    template = _QUOTED.match(arguments)
    if template is None:
        return None
    literals = re.split(r"(?<!\\)\{\}", template["text"])
    paths = [_path(argument) for argument in re.split(r",\s*", arguments[template.end() :])[1:]]
    if len(paths) != len(literals) - 1 or None in paths:
        return None
    parts = [_literal(literals[0])]
    for path, literal in zip(paths, literals[1:], strict=True):
        parts += [str(path), _literal(literal)]
    known = " and ".join(f"$exists({path})" for path in paths) or "true"
    return f"{known} ? {' & '.join(part for part in parts if part != _literal(''))}"


def _literal(text: str) -> str:
    return json.dumps(re.sub(r"\\(.)", r"\1", text))
