"""`LockMonitoring`: the dashboard, the alarms that were asked for, queries, and watched locks."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match

from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.monitoring import QUERIES
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.names import NAMESPACE, LogMessage, MetricName
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.template import Json, actions, flattened, properties, resources, template_of

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "monitoring.md"
EVERY_ALARM = LockAlarms(
    taken_over=1, queue_length=100, hand_off_latency=Duration.seconds(10), lost=2
)
WATCHED = ["deploy/*", "nightly report"]
OF_A_REAPER = {"DeadLetters", "ReaperDelay", "ReapErrors", "ReapThrottles"}
OF_FUNCTIONS = {
    f"{name}{kind}"
    for name in ("Acquire", "Heartbeat", "Release")
    for kind in ("Errors", "Throttles")
}
OF_THE_TABLE = {"TableReadThrottles", "TableWriteThrottles"}
DEFAULT_ALARMS = {"CurrentWait", "Lost"} | OF_A_REAPER | OF_FUNCTIONS | OF_THE_TABLE
NOT_GRAPHED = {
    *(MetricName.EXTENDED, MetricName.CLAIM_NOT_REMOVED),
    *(MetricName.REACQUIRED, MetricName.SUPERSEDED),
    *(MetricName.PACE_WAIT, MetricName.SLOT_TOO_LATE),
}
"""Nothing that any caller has to look at, or of a feature that few services have."""


@pytest.fixture(scope="module")
def template(new_app: NewApp) -> Json:
    """Of a stack that watches a shared service, with a topic and every alarm."""
    return template_of(watching(new_app, EVERY_ALARM))


def watching(new_app: NewApp, alarms: LockAlarms, watch: Sequence[str] = ()) -> Stack:
    stack = Stack(new_app(), "Watching")
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    topic = sns.Topic(stack, "Topic", enforce_ssl=True)
    LockMonitoring(
        stack, "Monitoring", service=locks, alarm_topic=topic, alarms=alarms, watch=watch
    )
    return stack


def graphs(template: Json) -> list[Json]:
    [dashboard] = properties(template, "AWS::CloudWatch::Dashboard")
    body = flattened(dashboard["DashboardBody"])
    return [each["properties"] for each in json.loads(body)["widgets"]]


def graphed(template: Json) -> list[str]:
    """The metrics by namespace and name."""
    return [f"{metric[0]}/{metric[1]}" for each in graphs(template) for metric in each["metrics"]]


def alarms(template: Json) -> dict[str, Json]:
    found = resources(template, "AWS::CloudWatch::Alarm").items()
    return {re.sub(r"^\w*Monitoring|.{8}$", "", name): each["Properties"] for name, each in found}


def test_the_dashboard_shows_every_metric_that_tells_of_trouble(template: Json) -> None:
    own = {name for name in graphed(template) if name.startswith(f"{NAMESPACE}/")}
    assert own == {f"{NAMESPACE}/{name}" for name in set(MetricName) - NOT_GRAPHED}
    of_table = ("ReadThrottleEvents", "WriteThrottleEvents")
    consumed = ("ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits")
    assert set(graphed(template)) - own == {
        *(f"AWS/Lambda/{name}" for name in ("Errors", "Throttles", "Duration", "Invocations")),
        *(f"AWS/DynamoDB/{name}" for name in (*of_table, *consumed)),
        "AWS/SQS/ApproximateNumberOfMessagesVisible",
    }


def test_the_picture_in_the_document_is_of_this_dashboard(template: Json) -> None:
    """Run `python -m bench.dashboard` after a change of the graphs."""
    picture = (DOCUMENT.parent / "images" / "dashboard.svg").read_text()
    shown = {html.unescape(text) for text in re.findall(r">([^<>]+)</text>", picture)}
    assert {each["title"] for each in graphs(template)} <= shown


def test_alarms_are_made_by_thresholds_or_a_topic_which_is_told_of_each_end_as_well(
    own: Stack, imported: SharedLockService
) -> None:
    """Those that no topic hears of are warned of."""
    topic = sns.Topic(own, "Topic")
    watch = partial(LockMonitoring, own, service=imported)
    watch("NoAlarm")
    nones = ("current_wait", "dead_letters", "reaper_delay", "function_errors", "throttles")
    only_lost: dict[str, Any] = dict.fromkeys(nones)
    watch("Two", alarms=LockAlarms(**only_lost), alarm_topic=topic)
    usual = watch("UsualMonitoring", alarm_topic=topic)
    watch("Unheard", alarms=LockAlarms(**only_lost))
    found = alarms(template_of(own))
    assert set(usual.alarms) == DEFAULT_ALARMS == found.keys() - {"TwoLost", "UnheardLost"}
    assert len(found) == len(DEFAULT_ALARMS) + 2
    told = [own.resolve(topic.topic_arn)]
    for name in DEFAULT_ALARMS:
        assert found[name]["AlarmActions"] == found[name]["OKActions"] == told
    said = Match.string_like_regexp("without a topic: give alarm_topic, or acknowledge this warn")
    [warned] = Annotations.from_stack(own).find_warning("*", said)
    assert warned.id == "/Own/Unheard"


def test_each_alarm_has_its_threshold_and_none_fires_by_silence(template: Json) -> None:
    found = alarms(template)
    own = [each for each in found.values() if each.get("Namespace") == NAMESPACE]
    [name] = {each["Dimensions"][0]["Value"]["Ref"] for each in own}
    assert "ServiceName" in name
    assert set(found) == DEFAULT_ALARMS | {"TakenOver", "QueueLength", "HandOffLatency"}
    assert found["CurrentWait"]["Threshold"] == 20 * 60_000
    assert found["HandOffLatency"]["Threshold"] == 10_000
    assert (found["Lost"]["Threshold"], found["QueueLength"]["Threshold"]) == (2, 100)
    # A reaper that does not run has no errors, and no dead letters before the events expire.
    delay = found["ReaperDelay"]
    assert (delay["Namespace"], delay["MetricName"]) == ("AWS/SQS", "ApproximateAgeOfOldestMessage")
    assert (delay["Threshold"], delay["Statistic"]) == (30 * 60, "Maximum")
    assert {each["TreatMissingData"] for each in found.values()} == {"notBreaching"}


def test_a_service_without_a_reaper_has_no_alarm_about_one(own: Stack) -> None:
    locks = LockService(own, "Locks", reaper=False)
    LockMonitoring(own, "Monitoring", service=locks, alarms=LockAlarms())
    assert set(alarms(template_of(own))) == DEFAULT_ALARMS - OF_A_REAPER


def test_an_own_service_has_the_alarms_and_queries_of_its_events_too(everything: Json) -> None:
    of_events = {"PublishErrors", "PublishThrottles"}
    assert set(alarms(everything)) == DEFAULT_ALARMS | of_events
    functions = resources(everything, "AWS::Lambda::Function")
    for query in properties(everything, "AWS::Logs::QueryDefinition"):
        assert len(query["LogGroupNames"]) == len(functions)


def test_the_queries_read_the_logs_of_the_shared_functions(template: Json) -> None:
    found = properties(template, "AWS::Logs::QueryDefinition")
    assert {each["QueryString"] for each in found} == set(QUERIES.values())
    [parameter] = [
        name
        for name, each in template["Parameters"].items()
        if each["Default"] == "/fairlock/Fairlock/LogGroupNames"
    ]
    for each in found:
        assert each["LogGroupNames"] == {"Fn::Split": [",", {"Ref": parameter}]}
        assert "Watching" in each["Name"]


def test_a_query_names_fields_that_the_functions_log_and_both_messages_that_lost_counts() -> None:
    root = DOCUMENT.parent.parent
    paths = ("lambdas/runtime.py", "fairlock/store/context.py")
    logged = "".join((root / path).read_text() for path in paths)
    for name in re.findall(r"\b(\w+_(?:name|arn|token|ms|by))\b", str(QUERIES)):
        assert name in logged
    for title in ("Lost and taken away", "Who held a lock"):
        [messages] = re.findall(r"message in \[(.*?)\]", QUERIES[title])
        assert {f'"{LogMessage.NOT_HELD}"', f'"{LogMessage.LOST}"'} <= {*messages.split(", ")}


def test_the_functions_log_no_message_that_the_enumeration_lacks() -> None:
    calls = re.compile(r"logger\.\w+\(\s*f?[\"']")
    assert calls.search('logger.info("a new message")')
    for module in (DOCUMENT.parent.parent / "lambdas").glob("*.py"):
        assert calls.search(module.read_text()) is None, module.name


def test_the_document_says_what_to_do_about_each_alarm(template: Json) -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\*", DOCUMENT.read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    kinds = {
        re.sub(r"^(Acquire|Heartbeat|Release|Reap|Table(Read|Write))(?=Err|Thr)", "", name)
        for name in alarms(template)
    }
    assert kinds == told


def test_each_alarm_says_what_to_type_first_and_names_a_page(template: Json) -> None:
    texts = [json.dumps(each["AlarmDescription"]) for each in alarms(template).values()]
    first = r"First: (fairlock (ls --waiting|doctor) --table |run the saved query)"
    for text in texts:
        assert re.search(first, text)
        row = re.search(r"Then: (\w+) in docs/runbook.md", text)
        assert row is not None
        assert f"**{row[1]}**" in (DOCUMENT.parent / "runbook.md").read_text()
    assert any("fairlock ls --waiting --table " in text for text in texts)
    assert any("'Lost and taken away'" in text for text in texts)
    assert "Lost and taken away" in QUERIES


# `LockMonitoring(watch=[…])`: a scheduled function measures waits, those of clients included.


@pytest.fixture(scope="module")
def scheduled(new_app: NewApp) -> Json:
    alarms = LockAlarms(current_wait=Duration.minutes(10))
    return template_of(watching(new_app, alarms, WATCHED))


def test_a_scheduled_function_may_only_read_and_is_not_repeated(scheduled: Json) -> None:
    """Lambda repeats an asynchronous invocation that fails, whatever EventBridge was told."""
    [(name, function)] = resources(scheduled, "AWS::Lambda::Function").items()
    assert function["Properties"]["Handler"] == "lambdas.watch.handler"
    variables = function["Properties"]["Environment"]["Variables"]
    assert json.loads(variables["FAIRLOCK_WATCHED"]) == WATCHED
    assert "LockTableName" in variables["FAIRLOCK_TABLE_NAME"]["Ref"]
    assert "ServiceName" in variables["POWERTOOLS_SERVICE_NAME"]["Ref"]
    [rule] = properties(scheduled, "AWS::Events::Rule")
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    assert rule["Targets"][0]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    assert function["Properties"]["Timeout"] == 240
    [config] = properties(scheduled, "AWS::Lambda::EventInvokeConfig")
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 300)
    alarms = properties(scheduled, "AWS::CloudWatch::Alarm")
    own = [each for each in alarms if {"Ref": name} in each.get("Dimensions", [{}])[0].values()]
    fires = {each["MetricName"]: each["Threshold"] for each in own}
    assert fires == {"Errors": 1, "Throttles": 1}  # It measures nothing.
    services = ("dynamodb:", "states:", "lambda:")
    may = {each for each in actions(scheduled) if each.startswith(services)}
    assert may == {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"}


def test_each_watched_name_has_an_alarm_that_says_which_locks_to_look_at(scheduled: Json) -> None:
    commands = ("ls --waiting --prefix deploy/ --table ", "show 'nightly report' --table ")
    for watched, command in zip(WATCHED, commands, strict=True):
        dimension = {"Name": "locks", "Value": watched}
        alarms = properties(scheduled, "AWS::CloudWatch::Alarm")
        [alarm] = [each for each in alarms if dimension in each.get("Dimensions", [])]
        assert (alarm["MetricName"], alarm["Threshold"]) == ("CurrentWait", 600_000)
        assert alarm["AlarmActions"]
        told = f"waited too long for {watched} and is still waiting.\\nFirst: fairlock {command}"
        assert told in json.dumps(alarm["AlarmDescription"])


@pytest.mark.parametrize("watch", [[], ["a", "b/c"]], ids=["no names", "single names"])
def test_what_is_not_watched_is_neither_scheduled_nor_scanned_for(
    own: Stack, imported: SharedLockService, watch: list[str]
) -> None:
    LockMonitoring(own, "Monitoring", service=imported, watch=watch)
    made = template_of(own)
    for kind in ("AWS::Lambda::Function", "AWS::Events::Rule"):
        assert len(resources(made, kind)) == bool(watch)
    assert ("dynamodb:Query" in actions(made)) == bool(watch)
    assert "dynamodb:Scan" not in actions(made)


def test_the_longest_list_fits_the_variables_of_aws_and_names_like_others_have_their_alarms(
    own: Stack, imported: SharedLockService
) -> None:
    watch = ["x" * 254 + "*", *(f"{number:03}".ljust(250, "x") for number in range(10))]
    LockMonitoring(own, "Longest", service=imported, watch=watch)
    alike = LockMonitoring(
        own, "Alike", service=imported, alarms=LockAlarms(), watch=["a/b", "a-b"]
    )
    assert {"Waiting for a/b", "Waiting for a-b"} <= set(alike.alarms)
    [function] = properties(template_of(own), "AWS::Lambda::Function", "Longest")
    variables = function["Environment"]["Variables"]
    assert len("".join(map(str, [*variables, *variables.values()]))) < 4_000
