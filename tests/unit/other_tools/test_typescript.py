"""The TypeScript example runs, in Node, against functions that answer by a script."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "other_tools" / "typescript"
NODE = ROOT / ".venv" / "bin" / "node"
STAND_IN = """
export class InvokeCommand { constructor(input) { this.input = input; } }
export class LambdaClient {
  constructor(settings) { this.answer = settings.answer; }
  async send(command) {
    const answer = this.answer(command);
    const Payload = new TextEncoder().encode(JSON.stringify(answer));
    return answer.errorType ? { Payload, FunctionError: "Unhandled" } : { Payload };
  }
}
"""
"""Of the AWS SDK, whose package is not installed here."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - JSON
    folder = tmp_path_factory.mktemp("typescript")
    for source in (*EXAMPLE.glob("*.ts"), Path(__file__).with_name("scenarios.mts")):
        shutil.copy(source, folder)
    package = folder / "node_modules" / "@aws-sdk" / "client-lambda"
    package.mkdir(parents=True)
    (package / "index.mjs").write_text(STAND_IN)
    (package / "package.json").write_text('{"main": "index.mjs"}')
    (folder / "package.json").write_text('{"type": "module"}')
    finished = subprocess.run(
        [str(NODE), "scenarios.mts"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_a_lost_answer_and_a_queue_are_asked_again_by_the_same_owner(ran: Any) -> None:  # noqa: ANN401 - JSON
    waits = ran["waits"]
    assert (waits["result"], waits["owners"]) == (41, 1)
    acquires = [request for operation, request in waits["calls"] if operation == "acquire"]
    assert [request.get("ticket") for request in acquires] == [None, None, 7, 7]
    assert all(request["queue"] is True for request in acquires)
    assert waits["pauses"] == [1000, 2000, 2000]
    last, request = waits["calls"][-1]
    assert (last, set(request)) == ("release", {"lock_name", "owner_id", "queue"})
    assert request["queue"] is True


def test_a_busy_lock_is_skipped_without_joining_its_queue(ran: Any) -> None:  # noqa: ANN401 - JSON
    skips = ran["skips"]
    assert (skips["error"], skips["message"]) == ("LockWaitTimeout", "lock customer/7: HELD")
    assert [operation for operation, _ in skips["calls"]] == ["acquire", "release"]
    assert "queue" not in skips["calls"][0][1]


def test_a_mistake_is_told_at_once(ran: Any) -> None:  # noqa: ANN401 - JSON
    assert ran["mistake"]["error"] == "InvalidRequest"
    assert ran["mistake"]["pauses"] == []


@pytest.mark.parametrize("how", ["loses", "unanswered"])
def test_the_work_is_told_of_a_loss_also_when_no_one_answers(ran: Any, how: str) -> None:  # noqa: ANN401 - JSON
    assert ran[how]["result"] == "lost"
    assert [operation for operation, _ in ran[how]["calls"]][1] == "heartbeat"


def test_a_release_that_fails_never_replaces_the_error_of_the_work(ran: Any) -> None:  # noqa: ANN401 - JSON
    assert ran["fails"]["message"] == "declined"
    operations = [operation for operation, _ in ran["fails"]["calls"]]
    assert operations.count("release") == 3


def test_the_sdk_is_given_the_function_and_its_errors_keep_their_names(ran: Any) -> None:  # noqa: ANN401 - JSON
    answer, error, sent = ran["invoked"]
    assert (answer["fencing_token"], error) == (41, "InvalidRequest")
    assert sent[0] == {"FunctionName": "acquire-arn", "Payload": '{"a":1}'}
