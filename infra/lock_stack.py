"""`Fairlock`: the lock service as a stack."""

from __future__ import annotations

from dataclasses import fields

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk import LockService
from infra.settings import Settings


class LockStack(Stack):
    """One lock service, `locks`, shared with other stacks, with outputs for its direct callers."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        """Declares the stack."""
        super().__init__(
            scope,
            construct_id,
            description="Fairlock: a lock service with leases, fencing tokens and semaphores",
        )
        options = {each.name: getattr(settings, each.name) for each in fields(settings)}
        del options["demo"]
        if settings.architecture is not None:
            options["architecture"] = lambda_.Architecture.custom(settings.architecture)
        self.locks = LockService(self, "Locks", **options)
        self.locks.add_outputs()
        self.locks.share()
