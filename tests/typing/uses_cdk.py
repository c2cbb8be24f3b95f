"""Typical uses of the constructs. `make lint` reads it: CDK's types take minutes to read again."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Pace, Waiting


class Billing(Stack):
    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        locks = LockService(self, "Locks", pace=True)
        charge = sfn.Pass(self, "Charge")
        guard = LockGuard(
            self,
            "OneChargePerCustomer",
            service=locks,
            task=charge,
            lock_name="{% 'customer/' & $states.input.customer_id %}",
            limit=1,
            lease=Duration.minutes(1),
            max_wait=Duration.minutes(30),
            waiting=Waiting.queue(),
            max_hold=None,
        )
        deploy = LockGuard(
            self,
            "Deploy",
            service=locks,
            task=sfn.Pass(self, "DeployIt"),
            lock_name="deploy",
            only_newest="{% $states.input.build %}",
            on_superseded=sfn.Succeed(self, "ANewerBuildRuns"),
        )
        pages = LockGuard(
            self,
            "Pages",
            service=locks,
            task=sfn.Pass(self, "ReadPages"),
            lock_name=["pages/1", "pages/2"],
            shared=True,
        )
        rate = (10, Duration.minutes(1))
        pace = Pace(self, "Vendor", service=locks, pace_name="vendor", rate=rate)
        done = sfn.Succeed(self, "Done")
        sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(
                pace.next(guard.next(deploy).next(pages).next(done))
            ),
        )
