"""What the program prints, writes and answers."""

import itertools
import json
import shlex
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from rich.console import Console

from examples.demo import shell_lines
from examples.demo.__main__ import report
from examples.demo.console import Narrator, phase
from examples.demo.facts import Role, Story
from examples.demo.runner import DemoFailed, Deployed, Runner, Started
from tests.demo.builders import guarded_execution

OUTPUTS = {
    "Fairlock": {
        "AcquireFunctionName": "acquire-fn",
        "LockTableName": "locks",
        "ReleaseFunctionName": "release-fn",
    },
    "FairlockDemo": {
        "AccountsTableName": "accounts",
        "ChargeFunctionName": "charge-fn",
        "UnguardedStateMachineArn": "arn:unguarded",
        "GuardedStateMachineArn": "arn:guarded",
        "PollingStateMachineArn": "arn:polling",
        "LeaseSeconds": "6",
        "FallbackSeconds": "10",
    },
}


@pytest.fixture
def narrator() -> Narrator:
    return Narrator(Console(file=StringIO(), width=80, highlight=False))


def printed(narrator: Narrator) -> str:
    assert isinstance(narrator.console.file, StringIO)
    return narrator.console.file.getvalue()


def test_a_good_story_is_written_down_and_has_no_failures(
    story: Story, narrator: Narrator, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "demo"
    assert report(story, narrator, output) == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "index.html",
        "picture.png",
        "picture.svg",
    ]
    text = printed(narrator)
    assert (output / "index.html").as_uri() in text
    assert "1700000000000002" in text
    assert "FAILED:" not in text
    assert max(len(line) for line in text.splitlines() if "170000" in line) <= 80


def test_every_failed_check_is_counted_and_printed(
    story: Story, narrator: Narrator, tmp_path: Path
) -> None:
    unrenamed = replace(story.failed.broken, error="States.TaskFailed")
    bad = replace(story, failed=replace(story.failed, broken=unrenamed))
    assert report(bad, narrator, tmp_path) == 1
    assert printed(narrator).count("✗ FAILED:") == 1


def test_an_execution_waits_is_inside_or_done() -> None:
    whole = guarded_execution()
    running = replace(whole, status="RUNNING")
    assert phase(whole) == "done"
    assert phase(running) == "inside"
    assert phase(replace(running, calls=())) == "waiting"


def test_the_lines_to_paste_are_shell_words_and_json() -> None:
    deployed = Deployed.from_outputs(OUTPUTS)
    environment = dict.fromkeys(shell_lines.EXPORTED, "test")
    text = shell_lines.lines(deployed, "http://127.0.0.1:4566", environment)
    words = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert [w for w in words if w[:1] == ["export"]] == [
        *(["export", f"{name}=test"] for name in shell_lines.EXPORTED),
        ["export", "AWS_PAGER="],
        ["export", "AWS_ENDPOINT_URL=http://127.0.0.1:4566"],
        ["export", "FAIRLOCK_TABLE_NAME=locks"],
    ]
    parsed = [w[1] for w in words if w[:1] == [".venv/bin/fairlock"]]
    assert parsed == ["ls", "run"]
    calls: list[dict[str, Any]] = []
    for line in (w for w in words if "aws" in w):
        flags = dict(itertools.pairwise(line))
        assert flags["--endpoint-url"] == "http://127.0.0.1:4566"
        body = flags.get("echo") or flags.get("--input") or "{}"
        target = flags.get("--function-name") or flags["--state-machine-arn"]
        calls.append({"to": target, **json.loads(body)})
    owner = {"lock_name": "nightly-report", "owner_id": shell_lines.OWNER_ID}
    assert calls == [
        {"to": "acquire-fn", **owner, "lease_seconds": 300},
        {"to": "release-fn", **owner},
        {"to": "arn:guarded", "account_id": "alice", "amount": 10, "work_seconds": 5},
        {"to": "arn:guarded"},
        {"to": "arn:polling", "account_id": "alice", "amount": 10, "work_seconds": 5},
        {"to": "arn:polling"},
    ]


def test_waiting_in_vain_is_an_error_that_names_the_execution_and_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = Runner(
        create_autospec(object), create_autospec(object), Deployed.from_outputs(OUTPUTS)
    )
    stuck = replace(
        guarded_execution("alice-1"),
        calls=tuple(
            replace(call, error="LockStoreUnavailable") for call in guarded_execution().calls
        ),
    )
    monkeypatch.setattr(runner, "facts", lambda _started: stuck)
    batch = [Started(arn="arn:1", name="alice-1", account_id="alice", roles={"S": Role.ACQUIRE})]
    with pytest.raises(DemoFailed) as failure:
        runner.watch(batch, lambda _: False, within_seconds=0)
    assert str(failure.value) == (
        "waited 0 s in vain for alice-1; their calls failed with LockStoreUnavailable"
    )
