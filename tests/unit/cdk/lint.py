"""What cfn-lint finds in a template."""

from __future__ import annotations

import json
import re
from typing import Any

Json = dict[str, Any]

SECONDS = re.compile(r'("(?:Timeout|Heartbeat)?Seconds"):"{%[^"]*%}"')
"""A number of seconds that a state machine computes."""


def lint(template: Json) -> list[str]:
    """What cfn-lint finds; the dependencies that CDK spells out twice are not of interest."""
    from cfnlint import api  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; a second to import
    from cfnlint.config import ManualArgs  # type: ignore[import-untyped]  # noqa: PLC0415 - same

    matches = api.lint(
        json.dumps(template),
        regions=["us-east-1"],
        config=ManualArgs(ignore_checks=["W3005"]),
    )
    return [f"{match.rule.id} {match.message}" for match in matches]
