"""`Leasehold`: the lock service as a stack."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.settings import Settings
from leasehold.cdk import ExecutionReaper, LockService


class LockStack(Stack):
    """One lock service, with outputs for its direct callers.

    Attributes:
        locks: the service, for guards in other stacks of the same app.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        """Declares the stack."""
        super().__init__(
            scope,
            construct_id,
            description="Leasehold: a lock service with leases, fencing tokens and semaphores",
        )
        name = settings.architecture
        architecture = None if name is None else lambda_.Architecture.custom(name)
        self.locks = LockService(
            self,
            "Locks",
            durable=settings.durable,
            administration=settings.administration,
            removal_policy=settings.removal_policy,
            deletion_protection=settings.deletion_protection,
            log_retention=settings.log_retention,
            log_level=settings.log_level,
            memory_size_mib=settings.memory_size_mib,
            tracing=settings.tracing,
            architecture=architecture,
            table_name=settings.table_name,
        )
        self._output("LockTable", self.locks.table.table_name, self.locks.table.table_arn)
        for operation, function in (
            ("Acquire", self.locks.acquire_function),
            ("Heartbeat", self.locks.heartbeat_function),
            ("Release", self.locks.release_function),
        ):
            self._output(f"{operation}Function", function.function_name, function.function_arn)
        if self.locks.administration is not None:
            inspect, release = (
                self.locks.administration.inspect,
                self.locks.administration.force_release,
            )
            self._output("InspectFunction", inspect.function_name, inspect.function_arn)
            self._output("ForceReleaseFunction", release.function_name, release.function_arn)
        self._reaper_outputs(self.locks.reaper)

    def _reaper_outputs(self, reaper: ExecutionReaper | None) -> None:
        if reaper is None:
            return
        reap, queues = reaper.function, (reaper.queue, reaper.dead_letter_queue)
        self._output("ReapFunction", reap.function_name, reap.function_arn)
        for name, queue in zip(("ReapQueueUrl", "ReapDeadLetterQueueUrl"), queues, strict=True):
            CfnOutput(self, name, value=queue.queue_url)
        CfnOutput(self, "ReapDeadLetterQueueArn", value=reaper.dead_letter_queue.queue_arn)

    def _output(self, prefix: str, name: str, arn: str) -> None:
        CfnOutput(self, f"{prefix}Name", value=name)
        CfnOutput(self, f"{prefix}Arn", value=arn)
