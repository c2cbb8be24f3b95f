"""JSONata by its official implementation, the npm package `jsonata`.

LocalStack starts a Java virtual machine with another implementation, which it downloads.
"""

import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import IO, Any, cast

from localstack.services.stepfunctions.asl.component.intrinsic import jsonata as added_functions
from localstack.services.stepfunctions.asl.jsonata import jsonata as localstack_jsonata

_PROGRAM = Path(__file__).with_name("jsonata.js")
_BY_NODE = ("$uuid", "$parse")
"""Functions of Step Functions that LocalStack lacks, or writes with `$eval`."""

_VARIABLE = re.compile(
    r"(?<=[(,])\s*/(?:\\.|[^\\/])+/[im]*"  # a regular expression is an argument of a function
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
    r"|(\$[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_][A-Za-z0-9_$]*)*)"
)
"""A variable with its fields. LocalStack's own pattern overlooks all that is in brackets."""


class _Node:
    """One process of Node, which evaluates one expression after the other.

    It ends when its standard input is closed, at the latest with this process.
    """

    def __init__(self, node_modules: Path) -> None:
        process = subprocess.Popen(
            ["node", str(_PROGRAM)],  # noqa: S607 - the node that `make` has put into the path
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NODE_PATH": str(node_modules)},
        )
        self._requests, self._answers = (
            cast("IO[str]", process.stdin),
            cast("IO[str]", process.stdout),
        )
        self._one_at_a_time = threading.Lock()

    def evaluate(self, expression: str) -> Any:
        request = json.dumps({"expression": expression})
        with self._one_at_a_time:
            self._requests.write(request + "\n")
            self._requests.flush()
            answer = json.loads(self._answers.readline())
        if "error" in answer:
            raise localstack_jsonata.JSONataException("UNKNOWN", answer["error"])
        return answer["result"]


def evaluate_with_node(node_modules: Path) -> None:
    """Replace LocalStack's evaluation of JSONata."""
    for name in _BY_NODE:
        added_functions._DECLARATION_BY_VARIABLE_REFERENCE.pop(name)
    localstack_jsonata._PATTERN_VARIABLE_REFERENCE = _VARIABLE
    localstack_jsonata._eval_jsonata = _Node(node_modules).evaluate
