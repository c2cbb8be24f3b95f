"""The guard's arguments, checked by the rules of the service, and lock names as JSONata."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Final, TypeVar, cast
from weakref import WeakKeyDictionary

from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from fairlock.cdk.fragments import (
    check_states,
    first_difference,
    is_jsonata,
    jsonata,
    require,
    whole_seconds,
)
from fairlock.cdk.guard.guard_rules import NO_LOCK
from fairlock.cdk.service.service_base import ILockService, LockServiceBase
from fairlock.errors import InvalidRequest
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS
from fairlock.wire import rules

HEARTBEATS_A_LEASE: Final = 3

_FUNCTIONS: Final = ("acquire_function", "heartbeat_function", "release_function")
_T = TypeVar("_T")


def checked(field: str, rule: rules.Rule, value: _T) -> _T:
    """The value, if it follows the service's rule for it."""
    rules.require(field, rule, value, show_text=True)
    return value


def check_service(service: ILockService, *, scope: Construct) -> None:
    """Checks that there are functions to call, in the account and region of the scope."""
    # Not asked of a service of this kind: each function that is asked for gets a parameter.
    is_service = isinstance(service, LockServiceBase) or all(
        hasattr(getattr(service, name, None), "function_arn") for name in _FUNCTIONS
    )
    rule = "must be a LockService of this app, or one of LockService.from_stack(…)"
    require("service", is_service, rule, service)
    why = ": only there can it wake those that wait, and ask whether they still run"
    require_near(service.acquire_function, scope, why=why)


def require_near(function: lambda_.IFunction, scope: Construct, *, why: str = "") -> None:
    """Checks that a function of the service is in the account and region of the scope."""
    stack = next((part for part in reversed(scope.node.scopes) if isinstance(part, Stack)), None)
    difference = stack and first_difference(stack, function.env)
    if difference:
        kind, here, there = difference
        rule = f"must be in the workflow's {kind} {here}{why}"
        raise InvalidRequest(field="service", rule=rule, value=there)


def check_work(task: sfn.IChainable, **instead: sfn.IChainable | None) -> None:
    """Checks what is guarded, and what is done instead, by the argument that gives it."""
    check_states("task", task)
    start = task.start_state
    is_first = start.node.path not in _GUARDED.get(start.node.root, ())
    rule = "must be guarded once: make a state of its own for each guard"
    require("task", is_first, rule, start.state_id)
    given = {field: states for field, states in instead.items() if states is not None}
    work = _reached_from(task) if given else set()
    for field, states in given.items():
        check_states(field, states)
        # What is connected by now: `GuardInMachine` checks the finished machine.
        if shared := sorted(_reached_from(states) & work):
            raise InvalidRequest(field=field, rule=NO_LOCK, value=shared[0].rpartition("/")[2])


def _reached_from(states: sfn.IChainable) -> set[str]:
    found = sfn.State.find_reachable_states(states.start_state, include_error_handlers=True)
    return {state.node.path for state in found}


_GUARDED: Final[WeakKeyDictionary[IConstruct, set[str]]] = WeakKeyDictionary()


def note_guarded(task: sfn.IChainable) -> None:
    """Has `check_work` refuse another guard of the same states."""
    _GUARDED.setdefault(task.start_state.node.root, set()).add(task.start_state.node.path)


def checked_jsonata(field: str, expression: str) -> str:
    """One JSONata expression that is not empty."""
    inner = expression[2:-2]
    is_one = inner.strip() and "{%" not in inner and "%}" not in inner
    rule = "must be one JSONata expression as a whole: '{% 'customer/' & $states.input.id %}'"
    require(field, is_one, rule, expression)
    return expression


def checked_limit(limit: int | str, *, shared: bool) -> int | str:
    """How many may be inside, or JSONata that gives the number when the workflow runs."""
    if is_jsonata(limit):
        return _that_exists("limit", checked_jsonata("limit", str(limit)))
    rule = "must be a number or JSONata, '{% $states.input.permits %}': a token has no value yet"
    require("limit", not _is_number_token(limit), rule, "a token")
    return rules.limit_of(int(checked("limit", rules.LIMIT, limit)), shared=shared)


def _is_number_token(value: object) -> bool:
    """Whether it is a token of CDK for a number; NaN and infinity would end CDK's process."""
    return isinstance(value, float) and math.isfinite(value) and Token.is_unresolved(value)


def _that_exists(field: str, expression: str) -> str:
    """The same JSONata, but it fails by the argument's name if it gives nothing."""
    inner = expression[2:-2].strip()
    said = f"{field}: {inner} must give a value: it is missing"
    value = f"$value := ({inner})"
    return jsonata(f"({value}; $exists($value) ? $value : $error({json.dumps(said)}))")


def checked_only_newest(only_newest: bool | int | str) -> int | str | None:  # noqa: FBT001 - its type tells
    """The version, or JSONata that gives it; None if the guard takes its turn."""
    if only_newest is False:
        return None
    if only_newest is True:
        return jsonata("$millis()")  # When the guard is entered, by the clock of Step Functions.
    if is_jsonata(only_newest):
        return _that_exists("only_newest", checked_jsonata("only_newest", str(only_newest)))
    rule = "must be True, a number or JSONata, '{% $states.input.build %}': a token is none"
    require("only_newest", not _is_number_token(only_newest), rule, "a token")
    rule = (
        "must be True, the version of this caller (a whole number of at least 0), or JSONata "
        "that gives it: '{% $states.input.build %}'"
    )
    require("only_newest", rules.ONLY_NEWEST.allows(only_newest), rule, only_newest)
    return only_newest


def checked_lease_seconds(lease: Duration | None) -> int:
    """Whole seconds, from one second to twelve hours; None for the default."""
    if lease is None:
        return rules.DEFAULT_LEASE_SECONDS
    seconds = whole_seconds("lease", lease)
    rule = (
        "must be from 1 second to 12 hours, such as the default of 1 minute: in a Standard "
        "workflow, a task that takes longer keeps the lock"
    )
    require("lease", rules.LEASE_SECONDS.allows(seconds), rule, lease.to_human_string())
    return seconds


def checked_fallback_seconds(fallback: Duration | None) -> int:
    """Whole seconds after which a waiter that sleeps in the queue asks again; or the default."""
    if fallback is None:
        return rules.DEFAULT_FALLBACK_SECONDS
    seconds = whole_seconds("fallback", fallback)
    least = rules.SHORTEST_FALLBACK_SECONDS
    rule = f"must be from {least} s to {LONGEST_FALLBACK_SECONDS} s (12 h)"
    require("fallback", least <= seconds <= LONGEST_FALLBACK_SECONDS, rule, f"{seconds} s")
    return seconds


def checked_keep_alive_seconds(
    keep_alive: Duration | None, *, lease_seconds: int, express: bool
) -> int | None:
    """Whole seconds between two heartbeats, at most a third of the lease; None for no heartbeat."""
    if keep_alive is None:
        return None
    seconds = whole_seconds("keep_alive", keep_alive)
    rule = (
        "must be left out in an Express workflow: Step Functions has no task tokens there, "
        "so nothing could end the heartbeat; choose a lease that is longer than the work"
    )
    require("keep_alive", not express, rule, keep_alive.to_human_string())
    rule = (
        f"must be from 1 s to a third of the lease of {lease_seconds} s, "
        "so that two heartbeats may be lost"
    )
    require("keep_alive", 1 <= seconds <= lease_seconds // HEARTBEATS_A_LEASE, rule, f"{seconds} s")
    return seconds


_NOT_EVALUATED: Final = ("{%", "%}", "$.", "$$", "$states", "States.Format(")
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{(?:\d*|[A-Za-z_][^{}]*)\}")
"""As an f-string and `format` replace it. Not `${…}`: tokens of CDK, templates of JSON."""
_STEP: Final = r"""\.(?P<name>[A-Za-z_]\w*)|\['(?P<quoted>[^'`]+)'\]|\[(?P<index>\d+)\]"""
_PATH: Final = re.compile(
    r"(?P<root>\$\$|\$[A-Za-z_]\w*|\$)(?P<steps>(?:" + re.sub(r"\?P<\w+>", "", _STEP) + r")*)"
)
_OPERATORS: Final = frozenset({"and", "or", "in", "true", "false", "null", "function"})
_FORMAT: Final = re.compile(r"States\.Format\((?P<arguments>.*)\)")
_QUOTED: Final = re.compile(r"'(?P<text>(?:[^'\\]|\\.)*)'")


def workflow_lock_name(scope: Construct, lock_name: str, *, field: str = "lock_name") -> str:
    """A value for a JSONata state; `field` is the argument that gives it."""
    if is_jsonata(lock_name):
        return _with_checked_parts(checked_jsonata(field, lock_name), field)
    if not isinstance(lock_name, str):
        return checked(field, rules.LOCK_NAME, lock_name)
    is_path = lock_name.startswith("$") and not Token.is_unresolved(lock_name)
    rule = "must not start with $: write JsonPath.string_at('$.…') or '{% $states.input.… %}'"
    require(field, not is_path, rule, lock_name)
    _refuse_parts_without_evaluation(lock_name, field)
    if Token.is_unresolved(lock_name):
        return _from_token(scope, lock_name, field)
    return checked(field, rules.LOCK_NAME, lock_name)


_BYTES: Final = r"$replace($encodeUrlComponent($run.match), '%', '\u007f')"
_KEY: Final = f"function($name) {{ $replace($name, /[^ -~]+/, function($run) {{ {_BYTES} }}) }}"
"""Text that sorts as the bytes of a lock name do: behind all ASCII, each byte in hexadecimal.
JSONata sorts by UTF-16, in which some names come in another order."""
_IN_ORDER: Final = (
    "($key := {key}; $later := function($l, $r) {{ $key($l) > $key($r) }}; $names := [{names}]; "
    "$count($names) = {number} and $count($distinct($names)) = {number} ? $sort($names, $later) : "
    "($twice := $filter($names, function($name) {{ $count($names[$ = $name]) > 1 }})[0]; "
    "$error('lock_name: ' & ($exists($twice) "
    "? $string($twice) & ' must come once: correct one of its expressions' "
    ": 'each expression must give one name, not a list'))))"
)


def names_in_order(
    scope: Construct, lock_name: str | Sequence[str], *, stored: str
) -> tuple[str | None, list[str]]:
    """The locks of a guard as JSONata, in the order in which it takes them.

    Before them what the variable `stored` is to be; None if all names are known at synth.
    """
    if not isinstance(lock_name, list | tuple):
        return None, [workflow_lock_name(scope, cast("str", lock_name))]
    checked("lock_name", rules.LOCK_NAMES, lock_name)
    values = [workflow_lock_name(scope, name) for name in lock_name]
    rules.require_different("lock_name", values)
    is_known = not any(Token.is_unresolved(value) for value in values)
    rule = "must have literals, JSONata or JsonPath tokens: the order of others is not known"
    require("lock_name", is_known, rule, "a token")
    if not any(is_jsonata(value) for value in values):
        return None, rules.in_lock_order(values)
    parts = [
        json.dumps(each)
        if not is_jsonata(each)
        else (each if f"${_CHECK}(" in each else _that_exists("lock_name", each))[2:-2].strip()
        for each in values
    ]
    names = ", ".join(f"({part})" for part in parts)
    order = jsonata(_IN_ORDER.format(key=_KEY, names=names, number=len(values)))
    return order, [jsonata(f"${stored}[{number}]") for number in range(len(values))]


def literal_lock_name(lock_name: str) -> str | None:
    """The lock name, if it is known at synth."""
    return None if is_jsonata(lock_name) or Token.is_unresolved(lock_name) else lock_name


def _refuse_parts_without_evaluation(literal: str, field: str) -> None:
    """Step Functions takes such a text as it is: it would be one lock for all customers."""
    found = next((part for part in _NOT_EVALUATED if part in literal), None)
    rule = (
        f"must not contain {found}, which nothing evaluates within a literal: "
        "write JSONata as a whole, '{% 'customer/' & $states.input.id %}', "
        "or JsonPath.format('customer/{}', JsonPath.string_at('$.id'))"
    )
    require(field, found is None, rule, literal)
    placeholder = _PLACEHOLDER.search(literal)
    rule = (
        f"must not contain {placeholder and placeholder[0]}, which nothing replaces: for a value "
        "of the workflow write '{% 'customer/' & $states.input.id %}', and for a value of a Python "
        "program put an f before the quotes"
    )
    require(field, placeholder is None, rule, literal)


def _from_token(scope: Construct, lock_name: str, field: str) -> str:
    """A JsonPath token becomes JSONata; any other token is a literal known at deployment."""
    try:
        if not sfn.JsonPath.is_encoded_json_path(lock_name):
            return lock_name
    except RuntimeError as error:  # how jsii hands over that a path is only a part of the string
        rule = (
            "must be a JsonPath token as a whole, without other text: write "
            "JsonPath.format('customer/{}', JsonPath.string_at('$.id'))"
        )
        shown = re.sub(r"\$\{Token\[[^\]]*\]\}", "…", lock_name)
        raise InvalidRequest(field=field, rule=rule, value=shown) from error
    path = str(Stack.of(scope).resolve(lock_name))
    call = _FORMAT.fullmatch(path)
    translated = _format_call(call["arguments"], field) if call else _path(path)
    rule = "uses a JSONPath that has no simple counterpart; write it as JSONata, '{% … %}'"
    require(field, translated is not None, rule, path)
    return jsonata(str(translated))


def _path(path: str) -> str | None:
    """`$.a[0]`, `$$.Execution.Name` or `$variable.a` as JSONata; None of another path."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    translated = {"$": "$states.input", "$$": "$states.context"}.get(match["root"], match["root"])
    for step in re.finditer(_STEP, match["steps"]):
        name = step["name"] or step["quoted"]
        if name is None:
            translated += f"[{step['index']}]"
        else:
            is_plain = name.isidentifier() and name not in _OPERATORS
            translated += f".{name}" if is_plain else f".`{name}`"
    return translated


def _format_call(arguments: str, field: str) -> str | None:
    """`States.Format` of paths, as a concatenation; None of another call."""
    template = _QUOTED.match(arguments)
    if template is None:
        return None
    literals = re.split(r"(?<!\\)\{\}", template["text"])
    paths = [_path(argument) for argument in re.split(r",\s*", arguments[template.end() :])[1:]]
    if len(paths) != len(literals) - 1 or None in paths:
        return None
    parts = [
        part
        for literal, path in zip(literals, [*paths, None], strict=True)
        for part in (literal and json.dumps(re.sub(r"\\(.)", r"\1", literal)), path)
    ]
    return _concatenation([part for part in parts if part], field)


_PART: Final = (
    "function($value, $name) {{ $type($value) = 'number' or $type($value) = 'string' and $value "
    "!= '' ? $value : $error('{field}: ' & $name & ' must be a text or a number: it is missing, "
    "null, empty, an object or a list') }}"
)
"""Checks a part of a name. `'customer/' & $states.input.id` alone would be `customer/` for every
customer whose id is missing, and `customer/null` for null: one lock for all of them."""
_CHECK: Final = "lock_name_part"
_OPERATOR: Final = re.compile(r"[?:;~=<>!+\-*/%|^@#,\s]")


def _with_checked_parts(expression: str, field: str) -> str:
    """The same JSONata, but a concatenation fails at a part that is missing."""
    parts = _operands(expression[2:-2])
    return expression if parts is None else jsonata(_concatenation(parts, field))


def _concatenation(parts: Sequence[str], field: str) -> str:
    checked_parts = [
        part if part[0] in "'\"" else f"${_CHECK}({part}, {json.dumps(part)})" for part in parts
    ]
    if list(parts) == checked_parts:
        return " & ".join(parts)
    return f"(${_CHECK} := {_PART.format(field=field)}; {' & '.join(checked_parts)})"


def _operands(expression: str) -> list[str] | None:
    """The operands of a chain of `&`; None of anything else."""
    found, bare, quote, depth = [""], [""], "", 0
    for letter in expression:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "&" and not depth:
            found.append("")
            bare.append("")
            continue
        elif not depth:
            bare[-1] += letter
        found[-1] += letter
    operands = [each.strip() for each in found]
    is_chain = len(operands) > 1 and all(operands) and "\\" not in expression
    has_operators = any(_OPERATOR.search(each.strip()) for each in bare)
    return operands if is_chain and not has_operators else None
