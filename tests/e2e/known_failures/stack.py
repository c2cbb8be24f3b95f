"""What people write who have not met the known failures: chains that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import jsii
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockService, Waiting
from tests.e2e.guard.stack import JSONATA, Form, Forms, function
from tests.e2e.workflow_parts import INPUT, LOCK, RESULT, invoke, once_each, stay

CHAIN_LEASE_SECONDS: Final = 2
OWNER_OF_THE_EXECUTION: Final = "{% $states.context.Execution.Name %}"
"""As good as its ARN, which may be longer than an owner id."""
OWNER_OF_THE_CALL: Final = "{% $uuid() %}"
"""In the arguments of a call: another one whenever the call is repeated."""
BOTH_RESULTS: Final = "{% {'work': $states.input, 'release': $states.result.Payload} %}"


class KnownFailures(Forms):
    """Their input names the `lock`."""

    waiting = Waiting.queue()

    def forms(self) -> Sequence[Form]:
        assert isinstance(self.locks, LockService)
        names = {"ACQUIRE": self.locks.acquire_function.function_name}
        lossy = function(self, "LossyAcquire", handler="meddling.lossy", environment=names)
        self.locks.grant_use(lossy)
        bodies: dict[str, Callable[[Form], sfn.IChainable]] = {
            "MapOneOwner": lambda form: once_each(form, Chain(form, stay(form))),
            "CaughtGuard": lambda form: caught(form, form.guard(form.work(), lock_name=LOCK)),
            "CaughtChain": lambda form: caught(form, Chain(form, form.work())),
            "OutputReplaced": lambda form: Chain(form, form.work(), outputs=None),
            "LostReplyNewOwner": lambda form: Chain(
                form, stay(form), acquire=lossy, owner_id=OWNER_OF_THE_CALL
            ),
        }
        return [Made(self, name, body=body) for name, body in bodies.items()]


class Made(Form):
    """A JSONata machine whose body a function makes."""

    language = JSONATA

    def __init__(self, scope: Forms, name: str, *, body: Callable[[Form], sfn.IChainable]) -> None:
        self.body = partial(body, self)  # type: ignore[method-assign]  # there is no other
        super().__init__(scope, name)


def caught(form: Form, guarded: sfn.IChainable) -> sfn.IChainable:
    """A workflow that handles the error, and whose next state asks for the same lock."""
    next_acquire = invoke(
        form,
        "NextAcquire",
        form.forms.locks.acquire_function,
        {"lock_name": LOCK, "owner_id": "{% $uuid() %}", "lease_seconds": CHAIN_LEASE_SECONDS},
        outputs="{% {'error': $states.input.error, 'next_acquire': $states.result.Payload} %}",
    )
    surrounding = sfn.Parallel.jsonata(form, "Surrounding").branch(guarded)
    error = "{% $merge([$states.input, {'error': $states.errorOutput.Error}]) %}"
    return surrounding.add_catch(next_acquire, errors=["States.ALL"], outputs=error)


class Chain(sfn.StateMachineFragment):
    """acquire → acquired? → work → release, and round again while it is not; it catches nothing.

    Args:
        form: the machine.
        work: what the lock is for.
        acquire: the function, if it is not the service's.
        owner_id: who it says it is.
        outputs: what leaves the chain; None is what the release call left.
    """

    def __init__(
        self,
        form: Form,
        work: sfn.IChainable,
        *,
        acquire: lambda_.IFunction | None = None,
        owner_id: str = OWNER_OF_THE_EXECUTION,
        outputs: str | None = BOTH_RESULTS,
    ) -> None:
        super().__init__(form, "Chain")
        locks, this_execution = form.forms.locks, "{% $states.context.Execution.Id %}"
        request = {
            "lock_name": LOCK,
            "owner_id": owner_id,
            "owner_name": this_execution,
            "execution_arn": this_execution,
            "lease_seconds": CHAIN_LEASE_SECONDS,
        }
        self._acquire = invoke(
            self,
            "Acquire",
            acquire or locks.acquire_function,
            request,
            outputs=INPUT,
            assign={"lock": RESULT},
        )
        self._acquire.add_retry(errors=["ConnectionError"], interval=Duration.seconds(1))
        owner = {"lock_name": "{% $lock.lock_name %}", "owner_id": "{% $lock.owner_id %}"}
        self._release = invoke(self, "Release", locks.release_function, owner, outputs=outputs)
        again = sfn.Wait.jsonata(self, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1)))
        acquired = sfn.Choice.jsonata(self, "Acquired?")
        inside = sfn.Chain.start(work).next(self._release)
        acquired.when(sfn.Condition.jsonata("{% $lock.acquired %}"), inside)
        acquired.otherwise(again.next(self._acquire))
        self._acquire.next(acquired)

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        return self._acquire

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        return [self._release]
