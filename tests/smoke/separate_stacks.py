"""Stacks that single cases create and delete: AWS may refuse them, or they are left on purpose."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import ArnFormat, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, LockMonitoring, LockService
from tests.e2e.guard.stack import Form, Forms, Props
from tests.e2e.lifetimes.stack import stays

LIFECYCLE_PREFIX: Final = "smoke-events/"
"""Of the names of locks whose events the rule lets through."""
WATCHED: Final = 120
"""State machines, so 20 rules in the policy of a queue."""


def short_logs(scope: Construct, construct_id: str) -> logs.LogGroup:
    """A log group that leaves nothing."""
    return logs.LogGroup(
        scope,
        construct_id,
        retention=logs.RetentionDays.ONE_DAY,
        removal_policy=RemovalPolicy.DESTROY,
    )


def queue_of(scope: Construct, pattern: events.EventPattern) -> str:
    """The URL of a queue that gets the events of this pattern."""
    queue = sqs.Queue(scope, "Events", removal_policy=RemovalPolicy.DESTROY)
    events.Rule(scope, "Rule", event_pattern=pattern).add_target(targets.SqsQueue(queue))
    return queue.queue_url


def short_lived(stack: Stack, **props: Any) -> LockService:  # noqa: ANN401 - a LockService's
    """A service that leaves nothing, with its outputs."""
    locks = LockService(
        stack,
        "Locks",
        removal_policy=RemovalPolicy.DESTROY,
        log_retention=logs.RetentionDays.ONE_DAY,
        **props,
    )
    locks.add_outputs()
    return locks


class SmokeTokenInMap(Forms):
    """A guard around a Distributed Map, whose ItemSelector reads the fencing token."""

    def declare(self) -> None:
        self.add("DistributedMapInGuard", self._body)

    def _body(self, form: Form) -> sfn.IChainable:
        items = sfn.ProvideItems.jsonata("{% $states.input.items %}")
        selector = {
            "item": "{% $states.context.Map.Item.Value %}",
            "fencing_token": LockGuard.fencing_token_of(form, "Guard"),
        }
        each = sfn.DistributedMap.jsonata(
            form, "Each", label="Each", items=items, item_selector=selector
        )
        return form.guard(each.item_processor(sfn.Pass.jsonata(form, "Show")))


class SmokeTokenInMapByPath(Forms):
    """The same in JSONPath."""

    def declare(self) -> None:
        self.add("DistributedMapInGuard", self._body, language=None)

    def _body(self, form: Form) -> sfn.IChainable:
        selector = {
            "item": sfn.JsonPath.string_at("$$.Map.Item.Value"),
            "fencing_token": sfn.JsonPath.number_at(LockGuard.fencing_token_path_of(form, "Guard")),
        }
        each = sfn.DistributedMap(
            form, "Each", label="Each", items_path="$.items", item_selector=selector
        )
        return form.guard(each.item_processor(sfn.Pass.jsonata(form, "Show")))


class SmokeKeys(Forms):
    """A lock table with a customer's key, and two machines, each encrypted with a key.

    The functions of the service may use the key of the table, which is that of the first machine.
    No one lets them use the key of the second.
    """

    def declare(self) -> None:
        known, foreign = (
            kms.Key(
                self,
                name,
                removal_policy=RemovalPolicy.DESTROY,
                pending_window=Duration.days(7),  # the shortest time after which KMS deletes a key
            )
            for name in ("TableKey", "MachineKey")
        )
        self.locks = short_lived(self, reaper=False, encryption_key=known)
        for name, key in (("KnownKey", known), ("ForeignKey", foreign)):
            encrypted: Props = {
                # Without a name CDK allows the use of the key to a machine whose name is empty.
                "state_machine_name": f"{self.stack_name}{name}",
                "encryption_configuration": sfn.CustomerManagedEncryptionConfiguration(key),
            }
            self.add(name, stays, machine=encrypted)


class SmokeRetained(Stack):
    """A lock service as it is by default: its table outlives the stack."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        LockService(self, "Locks", reaper=False).add_outputs()


class SmokeWatching(Stack):
    """A service that watches more machines than one rule takes.

    The machines are ARNs only: nothing of theirs ever ends.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        locks = short_lived(self)
        for number in range(WATCHED):
            arn = self.format_arn(
                service="states",
                resource="stateMachine",
                resource_name=f"{construct_id}-{number:040}",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            machine = sfn.StateMachine.from_state_machine_arn(self, f"Machine{number}", arn)
            locks.watch(machine)


class SmokeEvents(Stack):
    """A service that tells EventBridge, a queue for what it tells, and a monitoring of it."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        locks = short_lived(self, reaper=False, lifecycle_events=True)
        LockMonitoring(self, "Monitoring", service=locks, alarm_topic=sns.Topic(self, "Topic"))
        pattern = events.EventPattern(
            source=["fairlock"],
            detail={"lock_name": events.Match.prefix(LIFECYCLE_PREFIX)},
        )
        CfnOutput(self, "LifecycleEventsUrl", value=queue_of(self, pattern))
