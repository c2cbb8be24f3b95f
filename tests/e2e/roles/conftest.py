"""The lock service on an embedded AWS that enforces permissions, with a role for each use of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aws_cdk import App
from aws_cdk import aws_sqs as sqs

from app import build
from infra.lock_stack import LockStack
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.roles.calls import ACCOUNT
from tests.e2e.roles.identities import Identities, add_keyed_functions, add_roles

PRINCIPAL = "PolicyDocument.Statement.2.Condition.ArnNotEquals.aws:PrincipalArn"


def reap_sessions(stack: LockStack) -> str:
    """The embedded AWS has the ARN of a session in `aws:PrincipalArn`, AWS that of its role."""
    reaper = stack.locks.reaper
    assert reaper is not None
    assert reaper.function.role is not None
    return f"arn:aws:sts::{ACCOUNT}:assumed-role/{reaper.function.role.role_name}/*"


@pytest.fixture(scope="session")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An embedded AWS of its own, because enforcing is a setting of the whole of it."""
    assembly = tmp_path_factory.mktemp("cdk.out")
    settings = ("durable", "administration", "lifecycle_events")
    app = App(outdir=str(assembly), context=dict.fromkeys(settings, "true"))
    stack = build(app)
    add_roles(stack)
    add_keyed_functions(stack)
    for construct in app.node.find_all():
        if isinstance(construct, sqs.CfnQueuePolicy):  # which refuse what comes without TLS, too
            tls = "PolicyDocument.Statement.0.Condition.Bool.aws:SecureTransport"
            construct.add_property_override(tls, "whatever")
            if "DeadLetterQueue" not in construct.node.path:
                construct.add_property_override(PRINCIPAL, reap_sessions(stack))
    app.synth()
    with LocalAws(settings={"AUTH": "true"}) as aws:
        aws.bootstrap()
        storage = aws.client("s3")
        for bucket in storage.list_buckets()["Buckets"]:
            storage.delete_bucket_policy(Bucket=bucket["Name"])  # it refuses what comes without TLS
        yield Deployment(aws=aws, outputs=aws.deploy(app=assembly, stacks=("Fairlock",)))


@pytest.fixture(scope="session")
def identities(enforcing: Deployment) -> Identities:
    return Identities(enforcing)
