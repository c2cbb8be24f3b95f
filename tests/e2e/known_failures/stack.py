"""Small machines: guarded ones, and ones that were built wrongly on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from tests.e2e.guard.stack import Spoilt
from tests.e2e.known_failures.lock import (
    INPUT,
    LEASE_SECONDS,
    LOCK,
    OWNER_OF_THE_CALL,
    REPLY,
    Chain,
    Mistake,
    call,
)
from tests.e2e.workflow_parts import stay

TASK_SECONDS: Final = "{% $exists($states.input.hang) ? 1 : 30 %}"
"""Work that hangs ends soon; the other limit leaves time for a cold start."""
LONG_LEASE: Final = Duration.minutes(5)
SHORT_WAIT: Final = Duration.seconds(5)
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"


class KnownFailures(Stack):
    """One state machine for each output `KnownFailure…Arn`. Their input names the `lock`."""

    def __init__(self, scope: Construct, construct_id: str, *, locks: LockService) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = self._function("Worker", handler="worker.handler")
        self.lost_reply = self._function(
            "LostReply",
            handler="lost_reply.handler",
            environment={"ACQUIRE": locks.acquire_function.function_name},
        )
        locks.grant_use(self.lost_reply)
        for name, body in self._machines().items():
            self._machine(name, body)

    def _machines(self) -> dict[str, Callable[[Construct], sfn.IChainable]]:
        polling = Waiting.poll()
        return {
            "Unguarded": stay,
            "Guarded": lambda scope: self.guard(scope, stay(scope)),
            "Lasting": lambda scope: self.guard(scope, stay(scope), lease=LONG_LEASE),
            "Polling": lambda scope: self.guard(scope, stay(scope), waiting=polling),
            "Chain": lambda scope: self.chain(scope, stay(scope)),
            "Anonymous": lambda scope: self.chain(scope, stay(scope), told_execution=False),
            "Map": lambda scope: each(scope, self.guard(scope, stay(scope))),
            "MapOneOwner": lambda scope: each(scope, self.chain(scope, stay(scope))),
            "Caught": lambda scope: self.caught(scope, self.guard(scope, self.task(scope))),
            "CaughtChain": lambda scope: self.caught(scope, self.chain(scope, self.task(scope))),
            "GivesUp": lambda scope: self.guard(scope, stay(scope), max_wait=SHORT_WAIT),
            "Output": lambda scope: self.guard(scope, self.task(scope)),
            "OutputReplaced": lambda scope: self.chain(scope, self.task(scope), outputs=None),
            "LostReply": self.lost_reply_guarded,
            "LostReplyNewOwner": self.lost_reply_new_owner,
            "TwoGuards": self.two_guards,
            "TwoGuardsToo": lambda scope: self.two_guards(scope, waiting=polling),
        }

    def guard(self, scope: Construct, work: sfn.IChainable, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        """A guard with a short lease, which waits in the queue unless told otherwise."""
        arguments = {
            "construct_id": "Guard",
            "service": self.locks,
            "lock_name": LOCK,
            "limit": LIMIT,
            "lease": Duration.seconds(LEASE_SECONDS),
            "max_wait": Duration.minutes(2),
            **props,
        }
        return LockGuard(scope, task=work, **arguments)

    def chain(
        self,
        scope: Construct,
        work: sfn.IChainable,
        *,
        acquire: lambda_.IFunction | None = None,
        **mistake: Any,  # noqa: ANN401 - a Mistake's
    ) -> Chain:
        """The wrong kind of a guard."""
        return Chain(
            scope,
            "Chain",
            acquire=acquire or self.locks.acquire_function,
            release=self.locks.release_function,
            work=work,
            mistake=Mistake(**mistake),
        )

    def task(self, scope: Construct) -> sfn.IChainable:
        """A bare task that returns or fails as the input says."""
        return call(
            scope,
            "Task",
            self.worker,
            payload=sfn.TaskInput.from_text(INPUT),
            outputs=REPLY,
            task_timeout=sfn.Timeout.jsonata(TASK_SECONDS),
        )

    def caught(self, scope: Construct, guarded: sfn.IChainable) -> sfn.IChainable:
        """A workflow that handles the error, and whose next state asks for the same lock."""
        request = {"lock_name": LOCK, "owner_id": "{% $uuid() %}", "lease_seconds": LEASE_SECONDS}
        next_acquire = call(
            scope,
            "NextAcquire",
            self.locks.acquire_function,
            payload=sfn.TaskInput.from_object(request),
            outputs="{% {'error': $states.input.error, 'next_acquire': $states.result.Payload} %}",
        )
        surrounding = sfn.Parallel.jsonata(scope, "Surrounding").branch(guarded)
        error = "{% $merge([$states.input, {'error': $states.errorOutput.Error}]) %}"
        return surrounding.add_catch(next_acquire, errors=["States.ALL"], outputs=error)

    def lost_reply_guarded(self, scope: Construct) -> sfn.IChainable:
        """A guard whose first call of acquire is granted without its knowing."""
        service = Spoilt(
            acquire_function=self.lost_reply,
            heartbeat_function=self.locks.heartbeat_function,
            release_function=self.locks.release_function,
        )
        spoilt: ILockService = service
        return self.guard(scope, stay(scope), service=spoilt, waiting=Waiting.poll())

    def lost_reply_new_owner(self, scope: Construct) -> sfn.IChainable:
        """The same fault, met by a chain whose repeated call is another owner's."""
        owner = OWNER_OF_THE_CALL
        return self.chain(scope, stay(scope), acquire=self.lost_reply, owner_id=owner)

    def two_guards(self, scope: Construct, **props: Any) -> sfn.IChainable:  # noqa: ANN401 - a guard's
        """Two guards on the same lock, one after the other, the second one with all it needs."""
        first = self.guard(scope, stay(scope, "One"), construct_id="First", **props)
        first_span = sfn.Pass.jsonata(
            scope,
            "RememberFirst",
            assign={"one": INPUT},
            outputs="{% $states.context.Execution.Input %}",
        )
        second = self.guard(scope, stay(scope, "Two"), construct_id="Second", **props)
        spans = sfn.Pass.jsonata(scope, "Spans", outputs="{% [$one, $states.input] %}")
        return first.next(first_span).next(second).next(spans)

    def _function(self, construct_id: str, **props: Any) -> lambda_.Function:  # noqa: ANN401 - a function's
        return lambda_.Function(
            self,
            construct_id,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=lambda_.Code.from_asset(str(Path(__file__).parent / "worker")),
            timeout=Duration.seconds(30),
            **props,
        )

    def _machine(self, name: str, body: Callable[[Construct], sfn.IChainable]) -> None:
        scope = Construct(self, f"KnownFailure{name}")
        machine = sfn.StateMachine(
            scope,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(body(scope)),
            query_language=sfn.QueryLanguage.JSONATA,
        )
        CfnOutput(self, f"KnownFailure{name}Arn", value=machine.state_machine_arn)


def each(scope: Construct, guarded: sfn.IChainable) -> sfn.IChainable:
    """Three iterations at once, all with the machine's own input."""
    items = sfn.ProvideItems.jsonata("{% [$states.input, $states.input, $states.input] %}")
    return sfn.Map.jsonata(scope, "Each", items=items).item_processor(guarded)
