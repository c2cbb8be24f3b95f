"""What every lock service offers, and `ImportedLockService`: one that is deployed already."""

from __future__ import annotations

from typing import Protocol

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from leasehold.cdk.service.metrics import LockMetrics


class ILockService(Protocol):
    """What a guard needs of a lock service, in whichever stack or app it is."""

    @property
    def acquire_function(self) -> lambda_.IFunction:
        """Grants or refuses a lock."""

    @property
    def heartbeat_function(self) -> lambda_.IFunction:
        """Renews a holder's lease."""

    @property
    def release_function(self) -> lambda_.IFunction:
        """Frees a lock."""


class LockServiceBase(LockMetrics, Construct):
    """Grants and metrics, the same for a service made here and for an imported one."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction

    def grant_acquire(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal ask for locks. It should be able to release them, too."""
        return self.acquire_function.grant_invoke(grantee)

    def grant_heartbeat(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal renew leases. It needs the owner_id of the acquisition for each."""
        return self.heartbeat_function.grant_invoke(grantee)

    def grant_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal release locks. It needs the owner_id of the acquisition for each."""
        return self.release_function.grant_invoke(grantee)

    def grant_use(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal acquire, renew and release. State machines with a guard need no call."""
        acquire, heartbeat = self.grant_acquire(grantee), self.grant_heartbeat(grantee)
        return acquire.combine(heartbeat).combine(self.grant_release(grantee))


class ImportedLockService(LockServiceBase):
    """A lock service that another stack or app deployed; guards take it like their stack's own.

    It must be in the account and region of the workflows: only there can the service ask whether
    they still run, and wake those that wait.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
    ) -> None:
        """Refers to functions by ARNs, which are outputs of the stack `Leasehold`."""
        super().__init__(scope, construct_id)
        self.acquire_function = self._imported("Acquire", acquire_function_arn)
        self.heartbeat_function = self._imported("Heartbeat", heartbeat_function_arn)
        self.release_function = self._imported("Release", release_function_arn)

    def _imported(self, construct_id: str, arn: str) -> lambda_.IFunction:
        return lambda_.Function.from_function_attributes(
            self, construct_id, function_arn=arn, same_environment=True
        )
