"""Guards that are examined one by one."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, Waiting
from fairlock.cdk.guard.standalone import FunctionsByArn
from tests.unit.cdk.guard_forms import FUNCTION


class GuardFactory:
    """Makes guards in scopes of their own, as many as a test likes."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._made = 0
        self.locks = FunctionsByArn(
            stack,
            "Locks",
            acquire_function_arn=f"{FUNCTION}:acquire",
            heartbeat_function_arn=f"{FUNCTION}:heartbeat",
            release_function_arn=f"{FUNCTION}:release",
        )

    def guard(self, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        self._made += 1
        scope = Construct(self._stack, f"Guard{self._made}")
        task = sfn.Pass(scope, "Work")
        arguments = {"lock_name": "x", "waiting": Waiting.poll(), **props}
        return LockGuard(scope, name, service=self.locks, task=task, **arguments)

    def lock_name(self, lock_name: str) -> str:
        """What the guard's first state makes of a lock name."""
        [lock] = self.guard(lock_name=lock_name).start_state.to_state_json()["Assign"].values()
        return str(Stack.of(self._stack).resolve(lock["lock_name"]))
