"""What is read in the JSON of a state."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.cdk.machines import targets, variables_as_text

LOCK = "lock_Guard_01234567"
TOKEN = f"${LOCK}.fencing_token"


@pytest.mark.parametrize(
    ("language", "fields", "is_text"),
    [
        ("JSONata", {"Output": f"{{% {TOKEN} %}}"}, False),
        ("JSONata", {"Output": [{"deep": f"{{% [1, {TOKEN}] %}}"}]}, False),
        ("JSONata", {"Output": TOKEN}, True),
        ("JSONata", {"Arguments": {"Payload.$": TOKEN}}, True),
        ("JSONata", {"Output": f"token {{% {TOKEN} %}}"}, True),
        ("JSONata", {"Comment": f"its fencing token is {TOKEN}"}, False),
        ("JSONata", {"QueryLanguage": "JSONPath", "Parameters": {"token.$": TOKEN}}, False),
        ("JSONPath", {"QueryLanguage": "JSONata", "Output": f"{{% {TOKEN} %}}"}, False),
        ("JSONPath", {"Parameters": {"token.$": TOKEN}}, False),
        ("JSONPath", {"Parameters": {"text.$": f"States.Format('{{}}', {TOKEN})"}}, False),
        ("JSONPath", {"InputPath": TOKEN}, False),
        ("JSONPath", {"Choices": [{"Variable": TOKEN, "IsPresent": True, "Next": "On"}]}, False),
        ("JSONPath", {"Parameters": {"token": TOKEN}}, True),
        ("JSONPath", {"Parameters": {"tokens": [TOKEN]}}, True),
        ("JSONPath", {"Parameters": {"token": f"{{% {TOKEN} %}}"}}, True),
        ("JSONPath", {"Parameters": {"token.$": f"{{% {TOKEN} %}}"}}, True),
    ],
)
def test_a_variable_is_handed_on_as_text_where_nothing_evaluates_it(
    language: str, fields: dict[str, Any], *, is_text: bool
) -> None:
    assert variables_as_text(fields, language=language) == ({LOCK} if is_text else set())


def test_what_a_branch_names_is_not_the_parallel_s_own() -> None:
    branch = {"StartAt": "Tell", "States": {"Tell": {"Type": "Pass", "Result": TOKEN}}}
    assert variables_as_text({"Branches": [branch]}, language="JSONPath") == set()


def test_a_state_may_lead_on_in_four_ways() -> None:
    state = {
        "Next": "Next",
        "Default": "Default",
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Catch"}],
        "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "Choice"}],
    }
    assert set(targets(state)) == {"Next", "Default", "Catch", "Choice"}
