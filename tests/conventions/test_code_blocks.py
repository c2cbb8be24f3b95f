"""Every block of code in the documents has a check that fits its language, or fails."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import typer.main

from examples.fenced_sql.fence import SCHEMA
from fairlock.cli.app import app
from fairlock.errors import InvalidRequest
from fairlock.protocol.schema import lock_key
from fairlock.wire.lifecycle import LifecycleKind
from fairlock.wire.requests import parse_acquire, parse_force_release
from tests.support.checkout import (
    PYTHON_WORLDS,
    ROOT,
    Block,
    blocks,
    blocks_of,
    documents,
    python_world,
)

REQUESTS: dict[str, Callable[[Any], object]] = {
    "$ACQUIRE": parse_acquire,
    "$FORCE_RELEASE": parse_force_release,
}
"""The functions that the examples invoke, and what reads their requests."""
MORE_LINES = re.compile(r"\\\n\s*")
COMMENT = re.compile(r"\s+#\s.*$")
ASSIGNED = re.compile(r"[A-Z_]+=\S*")
OF_THE_CLI_ALONE = {"s3 cp", "cloudformation deploy", "cloudformation package"}
"""Commands of the AWS CLI that are no operation of AWS: their options are not compared."""
OTHERS = {"cat", "npm", "npx", "pip-audit", "uv"}
"""Programs of others, whose words are not parsed."""


class NotCheckedError(AssertionError):
    """A block, or a command in it, for which there is no check."""


def commands_in(block: Block) -> Iterator[list[str]]:
    """The commands of a block, each in words; variables before a command are left out."""
    text = MORE_LINES.sub(" ", block.code)
    for line in text.splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        words = shlex.split(COMMENT.sub("", line.removeprefix("$ ")))
        while words and ASSIGNED.fullmatch(words[0]):
            words.pop(0)
        if words:
            yield list(takewhile(lambda word: word not in {"&", "|", ">"}, words))


def check_command(words: list[str]) -> None:
    """Parses a command as its program would."""
    program, *rest = words
    match program.rpartition("/")[2]:
        case "fairlock":
            check_fairlock(rest)
        case "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert rest[0] in targets, words
        case "aws":
            check_aws(rest)
        case "cdk":
            assert rest[0] in {"bootstrap", "deploy", "destroy"}, words
        case "python" | "python3" | "pip":
            check_python_words(rest)
        case "export":
            assert all(ASSIGNED.fullmatch(word) for word in rest), words
        case ".":
            assert rest == [".venv/bin/activate"]
        case name if name not in OTHERS:
            raise NotCheckedError(words)


def check_python_words(words: list[str]) -> None:
    """A module that is there, a script of examples/app, or what pip installs."""
    match words:
        case ["-m", module, *_]:
            assert find_spec(module), words
        case [script, *_] if script.endswith(".py"):
            assert (ROOT / "examples" / "app" / script).exists(), words
        case ["install", "-r", file]:
            assert (ROOT / "examples" / "app" / file).exists(), words
        case ["install", *asked]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            [extras] = re.findall(r"fairlock\[([\w,]+)\]", " ".join(asked))
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras
        case _:
            raise NotCheckedError(words)


def check_fairlock(words: list[str]) -> None:
    """Lets the parser of the command line read the words, and runs nothing."""
    group = typer.main.get_command(app)
    if words and words[0].startswith("--install-completion"):
        return
    with group.make_context("fairlock", list(words), resilient_parsing=False) as context:
        name, command, rest = group.resolve_command(context, list(words))  # type: ignore[attr-defined]  # a group
        has_table = any("--table" in option.opts for option in command.params)
        table = ["--table", "locks"] if has_table else []
        dashes = rest.index("--") if "--" in rest else len(rest)
        command.make_context(name, [*rest[:dashes], *table, *rest[dashes:]], parent=context)


def check_aws(words: list[str]) -> None:
    """Compares the options of an AWS CLI command with the members of the operation."""
    service, operation, *rest = words
    if f"{service} {operation}" in OF_THE_CLI_ALONE:
        return
    model = botocore.session.get_session().get_service_model(service)
    named = "".join(part.title() for part in operation.split("-"))
    shape = model.operation_model(named).input_shape
    members = shape.members if shape else {}
    known = {re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() for name in members}
    known |= {"cli-binary-format", "region", "output", "query"}
    options = {word.removeprefix("--"): at for at, word in enumerate(rest) if word[:2] == "--"}
    assert set(options) <= known, set(options) - known
    if "key" in options:
        key = json.loads(rest[options["key"] + 1])
        assert key == lock_key(key["pk"]["S"].removeprefix("LOCK#")), key
    for option in {"payload", "input"} & set(options):
        sent = json.loads(rest[options[option] + 1])
        if service == "lambda":
            REQUESTS[rest[options["function-name"] + 1]](sent)


def answers_in(text: str) -> Iterator[Any]:
    """The JSON in a block, one document after the other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        answer, at = decoder.raw_decode(text, at)
        yield answer


def check_answer(answer: dict[str, Any]) -> None:
    """An answer of a function, by its first field."""
    fields = {
        "acquired": {
            True: "fencing_token expires_in_seconds lease_seconds",
            False: "reason holders",
        },
        "released": {True: "lock_name", False: "reason"},
        "renewed": {True: "lock_name", False: "reason"},
    }
    kind = next(iter(answer))
    assert set(fields[kind][answer[kind]].split()) <= set(answer)


def check_policy(policy: dict[str, Any]) -> None:
    """An IAM policy allows operations that AWS has."""
    session = botocore.session.get_session()
    for statement in policy["Statement"]:
        assert set(statement) == {"Effect", "Action", "Resource"}
        for action in statement["Action"]:
            service, _, operation = action.partition(":")
            model = session.get_service_model({"states": "stepfunctions"}.get(service, service))
            assert operation in [*model.operation_names, "InvokeFunction"], action


def check_event(event: dict[str, Any]) -> None:
    """An event of EventBridge, with fields that are made."""
    assert LifecycleKind(event["detail-type"])
    source = (ROOT / "fairlock" / "wire" / "lifecycle.py").read_text()
    assert [name for name in event["detail"] if f'"{name}"' not in source] == []


def check_shell(block: Block) -> None:
    found = list(commands_in(block))
    assert found, block
    for words in found:
        check_command(words)
    output = MORE_LINES.sub(" ", block.code).splitlines()
    rest = "\n".join(line for line in output if not line.startswith("$ "))
    if block.language == "console" and rest.startswith("{"):
        check_json(Block(block.document, block.line, "json", rest))


def check_json(block: Block) -> None:
    answers = list(answers_in(block.code))
    assert answers, block
    for answer in answers:
        if "Statement" in answer:
            check_policy(answer)
        elif "detail-type" in answer:
            check_event(answer)
        else:
            check_answer(answer)


def check_sql(block: Block) -> None:
    with sqlite3.connect(":memory:") as database:
        database.executescript(SCHEMA)
        for token, changes in ((33, 1), (34, 1), (33, 0)):
            done = database.execute(block.code, {"name": "n", "content": "c", "token": token})
            assert done.rowcount == changes, token


def is_command(line: str) -> bool:
    try:
        check_command(shlex.split(line.removeprefix("$ ")) or ["nothing"])
    except (AssertionError, ValueError):
        return False
    return True


def check_text(block: Block) -> None:
    assert not [line for line in block.code.splitlines() if is_command(line)]


def check_typescript(block: Block) -> None:
    """What an example imports of ours is exported."""
    found = re.findall(r'import \{ ([\w, ]+) \} from "\./(\w+\.ts)"', block.code)
    assert found, block
    for names, file in found:
        [path] = (ROOT / "examples").rglob(file)
        exported = re.findall(r"export (?:async )?\w+ (\w+)", path.read_text())
        assert set(names.split(", ")) <= set(exported), names


def check_java(block: Block) -> None:
    """The Java client is compared name by name: what an example uses has a row."""
    used = re.findall(r"\.with(\w+)\(|\bclient\.(\w+)\(|\b(\w+Exception)\b", block.code)
    assert used, block
    text = (ROOT / "docs" / "migration.md").read_text()
    there = " ".join(re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)).lower()
    assert [name for names in used for name in names if name.lower() not in there] == []


def check_python(block: Block) -> None:
    test = (ROOT / PYTHON_WORLDS[python_world(block)]).read_text()
    assert Path(block.document).name in test or "python_world" in test


CHECKS: dict[str, Callable[[Block], None]] = {
    "python": check_python,
    "sh": check_shell,
    "console": check_shell,
    "json": check_json,
    "sql": check_sql,
    "ts": check_typescript,
    "java": check_java,
    "text": check_text,
}


def check(block: Block) -> None:
    if block.language not in CHECKS:
        message = f"{block}: give its language, one of {', '.join(CHECKS)}, or add a check"
        raise NotCheckedError(message)
    CHECKS[block.language](block)


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_a_block_of_code_passes_the_check_of_its_language(block: Block) -> None:
    check(block)


def test_no_fence_is_overlooked() -> None:
    for path in documents():
        text = path.read_text()
        fences = re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of("", text)), path


WRONG_USAGE = typer.BadParameter.__mro__[1]
"""Of the parser of options; typer does not export it."""
FOUND = (AssertionError, ValueError, KeyError, InvalidRequest, WRONG_USAGE, sqlite3.Error)
BROKEN = [
    ("", "fairlock ls\n"),
    ("ruby", "puts 1\n"),
    ("python", "# a_file_that_no_test_runs.py\n"),
    ("sh", "fairlock lst\n"),
    ("sh", "fairlock ls --prefixx a\n"),
    ("sh", "fairlock run x --max-wait soon -- true\n"),
    ("sh", "make demos\n"),
    ("sh", "frobnicate --all\n"),
    ("sh", ".venv/bin/python -m localawz\n"),
    ("sh", "python settles.py 7\n"),
    ("sh", "pip install -r requirement.txt\n"),
    ("sh", "pip list\n"),
    ("sh", "pip install 'fairlock[cdk,everything]'\n"),
    ("console", "$ aws lambda invoke --function-nam x\n"),
    ("console", '$ aws lambda invoke --function-name $ACQUIRE --payload \'{"lock": "x"}\' out\n'),
    ("console", "$ aws lambda invoke --function-name $ACQUIRE --payload '{lock_name}' out\n"),
    ("console", '$ aws dynamodb delete-item --table-name t --key \'{"pk": {"S": "LOCK#a"}}\'\n'),
    ("console", "no command\n"),
    ("json", '{"acquired": true, "lock_name": "x"}\n'),
    ("json", '{"Statement": [{"Effect": "Allow", "Action": ["sqs:Fly"], "Resource": "*"}]}\n'),
    ("json", "{acquired: true}\n"),
    ("sql", "INSERT INTO report (name, content, fencing_token) VALUES (:name, :content, :token)\n"),
    ("ts", 'import { nothing } from "./nowhere.ts";\n'),
    ("java", 'client.acquireLock(AcquireLockOptions.builder("x").withLuck(1L).build());\n'),
    ("java", "charge();\n"),
    ("text", "fairlock ls\n"),
]


@pytest.mark.parametrize(("language", "code"), BROKEN)
def test_a_broken_block_is_found(language: str, code: str) -> None:
    with pytest.raises(FOUND):
        check(Block("none.md", 1, language, code))
