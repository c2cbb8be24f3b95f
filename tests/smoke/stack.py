"""The workflows of the smoke test, in one stack: all that AWS surely accepts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from infra.durable_package import package
from tests.e2e.durable.executions import WORKER
from tests.e2e.guard.stack import INPUT, JSONATA, Spoilt
from tests.e2e.workflow_parts import LOCK, stay
from tests.smoke import bodies
from tests.smoke.bodies import invoke

SHORT_FALLBACK_SECONDS: Final = 10
WAITS_SECONDS: Final = 25
POLLS_SECONDS: Final = 3
ENDS_SECONDS: Final = 5
DURABLE_SECONDS: Final = 120
KEPT_ALIVE_LEASES: Final = 3
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"


class SmokeWorkflows(Stack):
    """One state machine for each purpose; the output `<purpose>Arn` names it."""

    def __init__(
        self, scope: Construct, construct_id: str, *, locks: LockService, interval_seconds: int
    ) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = self._function("Worker", "worker.handler")
        self.refuses = self._function("Refuses", "worker.refuse")
        self._errors(Duration.seconds(interval_seconds))
        self._kept_alive(Duration.seconds(interval_seconds))
        self._ways_to_wait()
        self._status_events()
        self._durable()
        for name, body, language in (
            ("FormsPath", bodies.forms_by_path, None),
            ("FormsJsonata", bodies.forms_in_jsonata, JSONATA),
            ("Integers", bodies.integers, None),
            ("GuardInMap", bodies.guard_in_map, JSONATA),
            ("GuardInDistributedMap", bodies.guard_in_distributed_map, None),
        ):
            scope = Construct(self, name)
            self._machine(scope, body(scope, locks, self.worker), query_language=language)

    def _function(self, construct_id: str, handler: str) -> lambda_.Function:
        return lambda_.Function(
            self,
            construct_id,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=lambda_.Code.from_asset(str(Path(__file__).parent / "worker")),
            handler=handler,
            log_group=logs.LogGroup(
                self,
                f"{construct_id}Logs",
                retention=logs.RetentionDays.ONE_DAY,
                removal_policy=RemovalPolicy.DESTROY,
            ),
            timeout=Duration.minutes(1),
        )

    def _machine(self, scope: Construct, body: sfn.IChainable, **props: Any) -> sfn.StateMachine:  # noqa: ANN401 - a machine's
        machine = sfn.StateMachine(
            scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(body), **props
        )
        CfnOutput(self, f"{scope.node.id}Arn", value=machine.state_machine_arn)
        return machine

    def _guarded(self, name: str, *, works: bool = False, **props: Any) -> None:  # noqa: ANN401 - a guard's
        """A machine of one guard, around a wait of so many `seconds` or around the function."""
        scope = Construct(self, name)
        express = props.get("express", False)
        guard = LockGuard(
            scope,
            "Guard",
            task=invoke(scope, "Work", self.worker) if works else stay(scope),
            **{"service": self.locks, "lock_name": LOCK, "limit": LIMIT, **props},
        )
        kind = sfn.StateMachineType.EXPRESS if express else None
        self._machine(scope, guard, query_language=JSONATA, state_machine_type=kind)

    def _errors(self, interval: Duration) -> None:
        fails = Construct(self, "Fails")
        child = self._machine(fails, sfn.Fail(fails, "Fail", error="Child", cause="on purpose"))
        scope = Construct(self, "Errors")
        body = bodies.errors(scope, self.locks, self.worker, child=child, interval=interval)
        self._machine(scope, body, query_language=JSONATA)

    def _kept_alive(self, interval: Duration) -> None:
        terms: Mapping[str, Any] = {
            "keep_alive": interval,
            "lease": Duration.seconds(KEPT_ALIVE_LEASES * interval.to_seconds()),
        }
        self._guarded("KeptAlive", **terms)
        not_released = Spoilt(
            acquire_function=self.locks.acquire_function,
            heartbeat_function=self.locks.heartbeat_function,
            release_function=self.refuses,
        )
        self._guarded("NotReleased", works=True, service=not_released, **terms)

    def _ways_to_wait(self) -> None:
        self._guarded("Holds")  # in the queue, with the fallback period of 5 minutes
        short = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))
        self._guarded("Waits", waiting=short, max_wait=Duration.seconds(WAITS_SECONDS))
        self._guarded("Express", express=True, max_wait=Duration.seconds(30))
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        self._guarded(
            "Polls",
            waiting=Waiting.poll(),
            max_wait=Duration.seconds(POLLS_SECONDS),
            on_timeout=later,
        )

    def _status_events(self) -> None:
        """A machine that is over after five seconds at the latest, and a queue of its events."""
        scope = Construct(self, "Ends")
        machine = self._machine(
            scope, stay(scope), query_language=JSONATA, timeout=Duration.seconds(ENDS_SECONDS)
        )
        queue = sqs.Queue(scope, "Events", removal_policy=RemovalPolicy.DESTROY)
        pattern = events.EventPattern(
            source=["aws.states"], detail={"stateMachineArn": [machine.state_machine_arn]}
        )
        rule = events.Rule(scope, "Rule", event_pattern=pattern)
        rule.add_target(targets.SqsQueue(queue))
        CfnOutput(self, "EventsUrl", value=queue.queue_url)

    def _durable(self) -> None:
        """A durable function that holds locks, and a queue of the events of its executions."""
        scope = Construct(self, "Durable")
        with tempfile.TemporaryDirectory() as directory:  # the CDK copies it at once
            built = package(WORKER, Path(directory, "function"))
            function = lambda_.Function(
                scope,
                "Function",
                runtime=lambda_.Runtime.PYTHON_3_13,
                architecture=lambda_.Architecture.ARM_64,
                code=lambda_.Code.from_asset(str(built)),
                handler="inside.durable",
                timeout=Duration.minutes(1),
                durable_config=lambda_.DurableConfig(
                    execution_timeout=Duration.seconds(DURABLE_SECONDS)
                ),
                log_group=logs.LogGroup(
                    scope,
                    "Logs",
                    retention=logs.RetentionDays.ONE_DAY,
                    removal_policy=RemovalPolicy.DESTROY,
                ),
            )
        self.locks.grant_durable(function)
        CfnOutput(self, "DurableFunctionName", value=function.function_name)
        queue = sqs.Queue(scope, "Events", removal_policy=RemovalPolicy.DESTROY)
        pattern = events.EventPattern(
            source=["aws.lambda"],
            detail_type=["Durable Execution Status Change"],
            detail={"durableExecutionArn": [{"prefix": f"{function.function_arn}:"}]},
        )
        rule = events.Rule(scope, "Rule", event_pattern=pattern)
        rule.add_target(targets.SqsQueue(queue))
        CfnOutput(self, "DurableEventsUrl", value=queue.queue_url)
