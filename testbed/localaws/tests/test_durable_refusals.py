"""Corrections durable_refusals and machine_keys: what is refused, and who needs a key."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from testbed.localaws import LocalAws
from testbed.localaws.tests.durable import SOURCE, call, callback_of, function, start, status
from testbed.localaws.workbench import ROLE_ARN, Workbench

WithoutCorrection = Callable[..., Workbench]
REFUSALS = "durable_refusals"
KEY = "arn:aws:kms:us-east-1:000000000000:key/12345678-1234-1234-1234-123456789012"
HOUR = 3600


def refusal(bench: Workbench, **invocation: Any) -> str:
    """What Lambda says to an invocation; "invoked" if it takes it."""
    payload = json.dumps({"do": "waits", "n": 1})
    try:
        bench.functions.invoke(Payload=payload, **invocation)
    except ClientError as error:
        return f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
    return "invoked"


def test_a_durable_function_is_not_invoked_by_its_bare_name(corrected: Workbench) -> None:
    """Lambda developer guide, "Invoking Lambda durable functions", "Qualified ARNs"."""
    unqualified = "You cannot invoke a durable function using an unqualified ARN."
    name = function(corrected)
    for kind in ("RequestResponse", "Event"):
        found = refusal(corrected, FunctionName=name, InvocationType=kind)
        assert found == f"InvalidParameterValueException: {unqualified}"


@pytest.mark.parametrize("qualifier", ["$LATEST", "1", "live"])
def test_a_durable_function_is_invoked_by_version_alias_or_latest(
    corrected: Workbench, qualifier: str
) -> None:
    name = function(corrected)
    if qualifier == "1":
        qualifier = corrected.functions.publish_version(FunctionName=name)["Version"]
    if qualifier == "live":
        version = corrected.functions.publish_version(FunctionName=name)["Version"]
        corrected.functions.create_alias(FunctionName=name, Name="live", FunctionVersion=version)
    named: Any = {"FunctionName": f"{name}:{qualifier}", "InvocationType": "Event"}
    assert refusal(corrected, **named) == "invoked"


def test_control_the_bare_name_is_invoked(left_out: WithoutCorrection) -> None:
    bench = left_out(REFUSALS)
    assert refusal(bench, FunctionName=function(bench)) == "invoked"


def long_and_synchronous(bench: Workbench) -> str:
    name = function(bench, execution_seconds=HOUR)
    return refusal(bench, FunctionName=name, Qualifier="$LATEST")


def test_an_execution_of_an_hour_is_not_waited_for(corrected: Workbench) -> None:
    """Lambda developer guide, "Invoking Lambda durable functions", "Synchronous invocation"."""
    assert long_and_synchronous(corrected) == (
        "InvalidParameterValueException: You cannot synchronously invoke a durable function with"
        " an executionTimeout greater than 15 minutes."
    )
    assert start(corrected, "waits", execution_seconds=HOUR, n=1).startswith("arn:")


def test_control_an_execution_of_an_hour_is_waited_for(left_out: WithoutCorrection) -> None:
    assert long_and_synchronous(left_out(REFUSALS)) == "invoked"


def without_data(bench: Workbench) -> Any:
    assert call(bench, "waits", n=1) == 2
    arn = start(bench, "waits_without_timeout")
    assert "InputPayload" in status(bench, arn)
    return bench.functions.get_durable_execution(
        DurableExecutionArn=arn, IncludeExecutionData=False
    )


def test_an_execution_is_described_without_its_data(corrected: Workbench) -> None:
    """Lambda API reference, GetDurableExecution, IncludeExecutionData."""
    found = without_data(corrected)
    assert (found["Status"], "InputPayload" in found) == ("RUNNING", False)


def test_control_an_execution_is_described_with_its_data(left_out: WithoutCorrection) -> None:
    assert "InputPayload" in without_data(left_out(REFUSALS))


@pytest.fixture
def enforcing() -> Iterator[Callable[..., LocalAws]]:
    """An embedded AWS that enforces permissions, with and without the correction."""
    with contextlib.ExitStack() as stack:

        def made(*without: str) -> LocalAws:
            return stack.enter_context(LocalAws(settings={"AUTH": "true"}, without=without))

        yield made


def seen_by_a_caller(aws: LocalAws, *actions: str) -> dict[str, str]:
    """What a role that may do `actions` is answered about an execution whose function has a key."""
    bench = Workbench(aws)
    trust_lambda(aws)
    config = {"ExecutionTimeout": 60, "KMSKeyArn": KEY}
    name = bench.function(SOURCE, DurableConfig=config, Timeout=30)
    payload = json.dumps({"do": "waits_without_timeout"})
    arn = bench.functions.invoke(
        FunctionName=name, Qualifier="$LATEST", InvocationType="Event", Payload=payload
    )["DurableExecutionArn"]
    callback = callback_of(bench, arn)
    functions = caller(aws, *actions)
    asked: dict[str, Callable[[], Any]] = {
        "with data": lambda: functions.get_durable_execution(DurableExecutionArn=arn),
        "without": lambda: functions.get_durable_execution(
            DurableExecutionArn=arn, IncludeExecutionData=False
        ),
        "callback": lambda: functions.send_durable_execution_callback_success(
            CallbackId=callback, Result=b"1"
        ),
    }
    return {what: answer_of(ask) for what, ask in asked.items()}


def trust_lambda(aws: LocalAws) -> None:
    """Makes the role of the workbench's functions, which must exist where it is enforced."""
    identities = aws.client("iam")
    with contextlib.suppress(identities.exceptions.EntityAlreadyExistsException):
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        trust = {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Principal": {"Service": "lambda.amazonaws.com"},
        }
        name = ROLE_ARN.rpartition("/")[2]
        identities.create_role(RoleName=name, AssumeRolePolicyDocument=policy(trust))
        identities.put_role_policy(
            RoleName=name, PolicyName="it", PolicyDocument=policy(everything)
        )


def policy(statement: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def caller(aws: LocalAws, *actions: str, service: str = "lambda") -> Any:
    identities = aws.client("iam")
    name = f"caller-{len(identities.list_users()['Users'])}"
    identities.create_user(UserName=name)
    statement = {"Effect": "Allow", "Action": ["lambda:*", "states:*", *actions], "Resource": "*"}
    identities.put_user_policy(UserName=name, PolicyName="it", PolicyDocument=policy(statement))
    key = identities.create_access_key(UserName=name)["AccessKey"]
    return boto3.client(  # type: ignore[call-overload]  # its overloads want a literal
        service,
        endpoint_url=aws.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def answer_of(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "answered"


DENIED = "KMSAccessDeniedException"


def test_a_function_with_a_key_asks_who_reads_or_completes(
    enforcing: Callable[..., LocalAws],
) -> None:
    """Lambda developer guide, "Encryption for durable execution state"."""
    aws = enforcing()
    refused = {"with data": DENIED, "without": "answered", "callback": DENIED}
    assert seen_by_a_caller(aws) == refused
    assert set(seen_by_a_caller(aws, "kms:Decrypt").values()) == {"answered"}


def test_control_a_function_with_a_key_asks_nothing(enforcing: Callable[..., LocalAws]) -> None:
    assert set(seen_by_a_caller(enforcing(REFUSALS)).values()) == {"answered"}


def described_by_a_caller(aws: LocalAws, *actions: str) -> dict[str, Any]:
    """What a role that may do `actions` is told of an execution of a machine with a key."""
    bench = Workbench(aws)
    trust_lambda(aws)
    machine = bench.workflows.create_state_machine(
        name=f"keyed-{len(bench.workflows.list_state_machines()['stateMachines'])}",
        definition=json.dumps({"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}),
        roleArn=ROLE_ARN,
        encryptionConfiguration={"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": KEY},
    )["stateMachineArn"]
    arn = bench.workflows.start_execution(stateMachineArn=machine, input="[1]")["executionArn"]
    asks = caller(aws, *actions, service="stepfunctions")
    told: dict[str, Any] = {}
    for included in ("ALL_DATA", "METADATA_ONLY"):
        try:
            told[included] = asks.describe_execution(executionArn=arn, includedData=included)
        except ClientError as error:
            told[included] = error.response["Error"]["Code"]
    return {what: each if isinstance(each, str) else "input" in each for what, each in told.items()}


def test_a_machine_with_a_key_asks_who_describes_its_executions_with_their_data(
    enforcing: Callable[..., LocalAws],
) -> None:
    """Step Functions developer guide, "Data at rest encryption"."""
    aws = enforcing()
    refused = {"ALL_DATA": "KmsAccessDeniedException", "METADATA_ONLY": False}
    assert described_by_a_caller(aws) == refused
    allowed = described_by_a_caller(aws, "kms:Decrypt")
    assert allowed == {"ALL_DATA": True, "METADATA_ONLY": False}


def test_control_a_machine_with_a_key_asks_no_one(enforcing: Callable[..., LocalAws]) -> None:
    told = described_by_a_caller(enforcing("machine_keys"))
    assert told == {"ALL_DATA": True, "METADATA_ONLY": True}
