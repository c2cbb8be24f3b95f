"""Each model of a service of AWS does what the guide that it names says."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import Mock, call

import pytest
from botocore.exceptions import ClientError

from tests.simulation.engine import QUOTAS, Bucket, Engine, Quota
from tests.simulation.events import EventBus, Queue
from tests.simulation.faults import EventFaults, Faults
from tests.simulation.functions import TIMEOUT_SECONDS, Functions, Json, Outcome
from tests.simulation.guard import Account
from tests.simulation.stepfunctions import StepFunctions
from tests.simulation.versions import EARLIER, KEEP_ALIVE_SECONDS, TODAY, earlier, machine, recorded
from tests.simulation.world import World, running

pytestmark = pytest.mark.cached

DETAIL = {"executionArn": "arn:1", "status": "TIMED_OUT", "redriveCount": 0, "stopDate": 1}


@pytest.fixture
def world() -> Iterator[World]:
    with running(1):
        yield World(seed=1, faults=Faults(), scale=1, idle_bound=100)


class Reaper:
    """Takes the place of the functions: notes batches, and answers as it is told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batches: list[tuple[float, list[str]]] = []
        self.fails: set[str] = set()
        self.errors: list[str] = []
        self.seconds = 1.0

    def invoke(self, _name: str, event: Json, done: Any) -> None:  # noqa: ANN401 - any callable
        now = self.engine.now
        self.batches.append((now, [record["body"] for record in event["Records"]]))
        failed = [each for each in event["Records"] if each["body"] in self.fails]
        answer = {"batchItemFailures": [{"itemIdentifier": one["messageId"]} for one in failed]}
        error = self.errors.pop() if self.errors else ""
        self.engine.after(self.seconds, done, Outcome(answer=answer, error=error))


def queue_of(engine: Engine, concurrency: int = 50, **faults: Any) -> tuple[Queue, Reaper]:  # noqa: ANN401 - of EventFaults
    functions: Any = Reaper(engine)
    return Queue(engine, EventFaults(**faults), functions, concurrency), functions


def test_a_bucket_gives_its_size_at_once_and_then_what_is_refilled() -> None:
    engine = Engine(1)
    bucket = Bucket(engine, Quota(300, 15))
    assert sum(bucket.take() for _ in range(1_000)) == 300
    engine.now += 10
    assert sum(bucket.take() for _ in range(1_000)) == 150


def test_a_message_that_fails_comes_again_after_the_visibility_timeout_and_at_last_nowhere() -> (
    None
):
    engine = Engine(1)
    queue, reaper = queue_of(engine)
    reaper.fails = {"bad"}
    queue.send("bad")
    queue.send("good")
    engine.run(engine.now + 5_000)
    visibility, tries = recorded()["reaper"]["visibility timeout"], recorded()["reaper"]["tries"]
    times = [at for at, bodies in reaper.batches if "bad" in bodies]
    pauses = [round(later - at) for at, later in pairwise(times)]
    assert pauses == [visibility] * (tries - 1)
    assert queue.dead == ["bad"]
    assert sum("good" in bodies for _, bodies in reaper.batches) == 1
    assert queue.is_empty()


def test_the_mapping_takes_batches_of_ten_and_grows_to_its_bound() -> None:
    engine = Engine(1)
    queue, reaper = queue_of(engine, 8)
    for number in range(500):
        queue.send(str(number))
    engine.run(engine.now + 0.1)
    assert [len(bodies) for _, bodies in reaper.batches] == [10] * 5
    engine.run(engine.now + 60)
    at_once = Counter(round(at) for at, _ in reaper.batches)
    assert max(at_once.values()) == 8
    assert queue.is_empty()


def test_a_batch_that_lambda_refuses_is_tried_again_within_the_visibility_timeout() -> None:
    engine = Engine(1)
    queue, reaper = queue_of(engine)
    reaper.errors = ["Lambda.TooManyRequestsException"] * 3
    queue.send("a")
    engine.run(engine.now + 60)
    assert [bodies for _, bodies in reaper.batches] == [["a"]] * 4
    assert queue.is_empty()


def test_the_rule_sends_what_the_stacks_template_says_and_only_ends_that_left_something() -> None:
    engine = Engine(1)
    queue, reaper = queue_of(engine)
    bus = EventBus(engine, EventFaults(), QUOTAS["PutEvents"], queue)
    bus.publish({**DETAIL, "status": "SUCCEEDED"})
    bus.publish(DETAIL)
    engine.run(engine.now + 100)
    [(_, [body])] = reaper.batches
    assert '"executionArn": "arn:1"' in body
    assert '"redriveCount": "0"' in body


def test_a_function_that_takes_too_long_is_ended_and_its_process_is_gone(world: World) -> None:
    functions = Functions(world, {})

    def hangs(_event: Json, _context: object) -> Json:
        world.engine.wait()
        return {}

    functions.add("hangs", hangs)
    outcomes: list[Outcome] = []
    functions.invoke("hangs", {}, outcomes.append)
    world.engine.run(world.engine.now + TIMEOUT_SECONDS + 5)
    assert [each.error for each in outcomes] == ["Sandbox.Timedout"]
    assert functions.running == 0
    functions.invoke("hangs", {}, outcomes.append)
    assert functions.counts["cold"] == 2


def test_a_redriven_execution_enters_the_state_again_that_was_interrupted() -> None:
    with running(1):
        engine, called = Engine(1), Counter[str]()

        def functions(function: str, payload: Json, done: Any) -> None:  # noqa: ANN401 - any callable
            called[function] += 1
            owned = {name: payload.get(name) for name in ("lock_name", "owner_id")}
            answer = {**owned, "acquired": True, "fencing_token": 1}
            if function == "acquire":
                service.complete(payload["task_token"], answer, "", "")
            elif function == "release":
                done(Outcome(answer={}))
            else:
                engine.after(5.0, done, Outcome(answer={}))

        service = StepFunctions(engine, QUOTAS, functions, lambda _detail: None)
        watcher = Mock()
        run = service.start("queue", machine("queue"), "a", {"lock": "x"}, watcher)
        engine.run(engine.now + 3)
        run.end("ABORTED")
        assert service.describe(run.arn)["status"] == "ABORTED"
        assert run.redrive()
        assert run.context["Execution"]["RedriveCount"] == 1
        engine.run(engine.now + 60)
    assert called == {"acquire": 1, "work": 2, "release": 1}
    assert watcher.ended.mock_calls == [call(run, "ABORTED", ""), call(run, "SUCCEEDED", "")]


def test_a_task_token_that_has_timed_out_is_refused() -> None:
    engine, tokens = Engine(1), list[str]()
    service = StepFunctions(
        engine,
        QUOTAS,
        lambda _name, payload, _done: tokens.append(payload["task_token"]),
        lambda _detail: None,
    )
    service.start("queue", machine("queue"), "a", {"lock": "x"}, Mock())
    engine.run(engine.now + 305)
    assert len(tokens) == 2
    with pytest.raises(ClientError, match="TaskTimedOut"):
        service.complete(tokens[0], {}, "", "")
    with pytest.raises(ClientError, match="TaskDoesNotExist"):
        service.complete("none", {}, "", "")
    service.complete(tokens[1], {}, "", "")


def test_a_heartbeat_is_sent_once_an_interval_and_ends_with_the_release(world: World) -> None:
    account = Account(world)
    account.start("a", {"lock": "x", "work": 5 * KEEP_ALIVE_SECONDS - 5.0}, form="kept alive")
    world.run(at_most=1_000)
    assert account.functions.counts["heartbeat"] == 5
    assert world.judge.outcomes == {"granted": 1, "succeeded": 1}
    assert world.seconds < 5 * KEEP_ALIVE_SECONDS


def test_the_earlier_version_runs_its_own_code_and_todays_is_untouched() -> None:
    assert EARLIER.handlers["acquire"] is not TODAY.handlers["acquire"]
    ours = {name for name in sys.modules if name.split(".")[0] in {"fairlock", "lambdas"}}
    theirs = {name for name in sys.modules if name.startswith("earlier.")}
    assert {"earlier.lambdas.acquire", "earlier.fairlock.store.acquire"} <= theirs
    for name in theirs:
        used = {getattr(value, "__module__", "") for value in vars(sys.modules[name]).values()}
        assert not used & ours, f"{name} uses today's code"


def test_the_earlier_version_is_an_earlier_one() -> None:
    """It neither tells the run of an execution nor reads it: what scenario 15 is about."""
    assert "redrive_count" not in json.dumps(earlier()["machines"]["queue"])
    assert "redrive_count" in json.dumps(machine("queue"))
