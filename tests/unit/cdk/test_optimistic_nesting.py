"""Items as nested, and with texts as odd, as DynamoDB allows are translated within AWS's bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from fairlock.cdk import optimistic_update
from fairlock.cdk.optimistic_update import VersionedExpressions
from tests.unit.cdk.asl import DEEPEST_ON_AWS, TooDeepError, evaluate
from tests.unit.cdk.java_items import as_java

Json = dict[str, Any]

MOST_LEVELS = 32
"""Of nesting, says the DynamoDB developer guide. The attribute itself is the first."""
MEASURED_DEPTH = 16
"""Of the deepest evaluation here."""

SEEN: Json = {"key": {}, "token": "t", "next": "8", "unchanged": {}}
STAMPS: Json = {"version": {"N": "8"}, "version_id": {"S": "t"}}
EXPRESSIONS = VersionedExpressions(variable="$seen", key_name="account", version="version")

RECURSIVE = """{% (
    $one := function($value) { $merge($each($value, function($inner, $type) {
        {$type: $type = 'M' ? $all($inner) : $type = 'L' ? [$map($inner, $one)] : $inner}
    })) };
    $all := function($item) { $merge($each($item, function($value, $name) {
        {$name: $one($value)}
    })) };
    {'item': $all($states.result.Item)}
) %}"""


def read(item: Json, *, deepest: int = DEEPEST_ON_AWS) -> object:
    """The item as the task gets it."""
    states = {"input": {}, "result": {"Item": as_java(item)}}
    return evaluate(EXPRESSIONS.read_output(), states=states, deepest=deepest)["item"]


def written(item: Json, *, deepest: int = DEEPEST_ON_AWS) -> object:
    """The item as Step Functions gets it from the task."""
    transaction = evaluate(
        EXPRESSIONS.transaction(table_name="accounts"),
        states={"input": item},
        variables={"seen": SEEN},
        deepest=deepest,
    )
    return transaction["Put"]["Item"]


def nested(levels: int) -> Json:
    """An item with lists and maps in turns, at the bottom of which is a type to translate."""
    value: Json = {"BOOL": True}
    for level in range(levels - 1):
        value = {"L": [value]} if level % 2 else {"M": {"inner": value}}
    return {"outer": value}


@pytest.mark.parametrize("levels", [1, MOST_LEVELS])
def test_however_deeply_an_item_is_nested_the_evaluation_is_as_deep(levels: int) -> None:
    item = nested(levels)
    assert read(item, deepest=MEASURED_DEPTH) == item
    assert written(item, deepest=MEASURED_DEPTH) == {**as_java(item), **STAMPS}


def test_the_measured_depth_is_the_least_that_will_do() -> None:
    with pytest.raises(TooDeepError):
        written(nested(1), deepest=MEASURED_DEPTH - 1)


def test_a_function_that_calls_itself_would_not_get_down_to_the_last_level() -> None:
    shallow, deep = ({"result": {"Item": nested(levels)}} for levels in (8, MOST_LEVELS))
    assert evaluate(RECURSIVE, states=shallow) == {"item": nested(8)}
    with pytest.raises(TooDeepError):
        evaluate(RECURSIVE, states=deep)


TYPES = ["BOOL", "Bool", "NULL", "Nul", "SS", "Ss", "M", "L"]
ODD = ['"BOOL":true', '"Bool":true', '\\"SS":[', '"', "\\", "$1", "\0", "ä\u2028", *TYPES]
TEXTS = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = TEXTS.filter(lambda name: name not in {"", "version", "version_id"})
LEAVES = st.one_of(
    st.fixed_dictionaries({"S": TEXTS}),
    st.fixed_dictionaries({"BOOL": st.booleans()}),
    st.just({"NULL": True}),
    st.fixed_dictionaries({"N": st.integers().map(str)}),
    st.sampled_from(["SS", "BS", "NS"]).flatmap(
        lambda kind: st.fixed_dictionaries({kind: st.lists(TEXTS, min_size=1, max_size=2)})
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.fixed_dictionaries({"L": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"M": st.dictionaries(NAMES, inner, max_size=3)})
    ),
    max_leaves=8,
)
ITEMS = st.dictionaries(NAMES, VALUES, max_size=3)
SEARCH = settings(deadline=None, database=None, derandomize=True, max_examples=100)
FIRST_FOUND = settings(SEARCH, phases=[Phase.generate])


def is_translated(item: Json) -> bool:
    return read(item) == item and written(item) == {**as_java(item), **STAMPS}


@SEARCH
@given(item=ITEMS)
def test_whatever_the_names_and_texts_only_types_are_spelled_again(item: Json) -> None:
    assert is_translated(item)


@pytest.mark.parametrize(
    "careless", [{'/"BOOL":/': '"Bool":'}, {r"/BOOL(\W+)true/": "Bool$1true"}], ids=["name", "text"]
)
def test_a_careless_translation_is_noticed(
    monkeypatch: pytest.MonkeyPatch, careless: dict[str, str]
) -> None:
    spelling = {**optimistic_update._TO_JAVA, **careless}  # noqa: SLF001 - what is broken here
    monkeypatch.setattr(optimistic_update, "_TO_JAVA", spelling)
    assert find(ITEMS, lambda item: not is_translated(item), settings=FIRST_FOUND)
