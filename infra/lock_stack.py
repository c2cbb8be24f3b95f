"""`Fairlock`: the lock service as a stack."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk import LockService
from infra.settings import Settings


class LockStack(Stack):
    """One lock service, shared with other stacks, with outputs for its direct callers.

    Attributes:
        locks: the service, for guards in other stacks of the same app.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        """Declares the stack."""
        super().__init__(
            scope,
            construct_id,
            description="Fairlock: a lock service with leases, fencing tokens and semaphores",
        )
        name = settings.architecture
        architecture = None if name is None else lambda_.Architecture.custom(name)
        self.locks = LockService(
            self,
            "Locks",
            durable=settings.durable,
            administration=settings.administration,
            lifecycle_events=settings.lifecycle_events,
            pace=settings.pace,
            removal_policy=settings.removal_policy,
            deletion_protection=settings.deletion_protection,
            log_retention=settings.log_retention,
            log_level=settings.log_level,
            memory_size_mib=settings.memory_size_mib,
            tracing=settings.tracing,
            architecture=architecture,
            recursive_loop=settings.recursive_loop,
            table_name=settings.table_name,
        )
        self.locks.add_outputs()
        self.locks.share()
