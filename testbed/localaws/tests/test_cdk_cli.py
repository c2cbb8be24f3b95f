"""Bootstrap, deploy and destroy with the real CDK CLI, from an assembly written by hand."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.localaws import CdkError, LocalAws

STACK = {
    "Resources": {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
            },
        }
    },
    "Outputs": {"TableName": {"Value": {"Ref": "Table"}}},
}


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as running:
        running.bootstrap()
        yield running


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    """What `cdk synth` would have written for one stack without assets."""
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://000000000000/us-east-1",
        "properties": {"templateFile": "Small.template.json"},
    }
    manifest = {"version": "48.0.0", "artifacts": {"Small": stack}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "Small.template.json").write_text(json.dumps(STACK))
    return tmp_path


def test_a_stack_is_deployed_and_destroyed_without_the_users_files(
    aws: LocalAws, assembly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_PROFILE", "production")
    outputs = aws.deploy(stacks=("Small",), app=assembly)
    table = outputs["Small"]["TableName"]
    assert aws.client("dynamodb").list_tables()["TableNames"] == [table]
    aws.destroy(stacks=("Small",), app=assembly)
    assert aws.client("dynamodb").list_tables()["TableNames"] == []
    assert list(home.iterdir()) == []


def test_the_account_is_bootstrapped_as_the_cli_does_it(aws: LocalAws) -> None:
    version = aws.client("ssm").get_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    assert int(version["Parameter"]["Value"]) >= 21  # what aws-cdk-lib 2.275 asks for at most
    buckets = [bucket["Name"] for bucket in aws.client("s3").list_buckets()["Buckets"]]
    assert buckets == ["cdk-hnb659fds-assets-000000000000-us-east-1"]


def test_an_app_that_fails_is_reported_with_its_output(aws: LocalAws, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit('this app is broken on purpose')\n")
    with pytest.raises(CdkError, match="this app is broken on purpose"):
        aws.deploy(stacks=("Small",), app=f"python3 {app}")
