"""What people write who have not met the known failures: chains that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import jsii
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockService, Waiting
from tests.e2e.guard.stack import INPUT, JSONATA, RESULT, Form, Forms, function
from tests.e2e.workflow_parts import LOCK, once_each, stay

CHAIN_LEASE_SECONDS: Final = 2
TASK_SECONDS: Final = "{% $exists($states.input.sleep) ? 1 : 30 %}"
"""Work that sleeps is over its time soon; the other limit leaves time for a cold start."""
THIS_EXECUTION: Final = "{% $states.context.Execution.Id %}"
OWNER_OF_THE_EXECUTION: Final = "{% $states.context.Execution.Name %}"
"""As good as its ARN, which may be longer than an owner id."""
OWNER_OF_THE_CALL: Final = "{% $uuid() %}"
"""In the arguments of a call: another one whenever the call is repeated."""


class KnownFailures(Forms):
    """Their input names the `lock`."""

    waiting = Waiting.queue()

    def forms(self) -> Sequence[Form]:
        assert isinstance(self.locks, LockService)
        names = {"ACQUIRE": self.locks.acquire_function.function_name}
        lossy = function(self, "LossyAcquire", handler="meddling.lossy", environment=names)
        self.locks.grant_use(lossy)
        bodies: dict[str, Callable[[Form], sfn.IChainable]] = {
            "Unguarded": stay,
            "Chain": lambda form: chain(form, stay(form)),
            "Anonymous": lambda form: chain(form, stay(form), told_execution=False),
            "MapOneOwner": lambda form: once_each(form, chain(form, stay(form))),
            "CaughtGuard": lambda form: caught(form, form.guard(task(form), lock_name=LOCK)),
            "CaughtChain": lambda form: caught(form, chain(form, task(form))),
            "OutputReplaced": lambda form: chain(form, task(form), outputs=None),
            "LostReplyNewOwner": lambda form: chain(
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


def call(
    scope: Construct,
    name: str,
    function: lambda_.IFunction,
    **props: Any,  # noqa: ANN401 - LambdaInvoke's
) -> tasks.LambdaInvoke:
    """A call that is repeated only if the caller says so."""
    return tasks.LambdaInvoke.jsonata(
        scope, name, lambda_function=function, retry_on_service_exceptions=False, **props
    )


def task(form: Form) -> sfn.IChainable:
    """A bare task that returns or fails as the input says."""
    return call(
        form,
        "Task",
        form.forms.worker,
        payload=sfn.TaskInput.from_text(INPUT),
        outputs=RESULT,
        task_timeout=sfn.Timeout.jsonata(TASK_SECONDS),
    )


def caught(form: Form, guarded: sfn.IChainable) -> sfn.IChainable:
    """A workflow that handles the error, and whose next state asks for the same lock."""
    request = {"lock_name": LOCK, "owner_id": "{% $uuid() %}", "lease_seconds": CHAIN_LEASE_SECONDS}
    next_acquire = call(
        form,
        "NextAcquire",
        form.forms.locks.acquire_function,
        payload=sfn.TaskInput.from_object(request),
        outputs="{% {'error': $states.input.error, 'next_acquire': $states.result.Payload} %}",
    )
    surrounding = sfn.Parallel.jsonata(form, "Surrounding").branch(guarded)
    error = "{% $merge([$states.input, {'error': $states.errorOutput.Error}]) %}"
    return surrounding.add_catch(next_acquire, errors=["States.ALL"], outputs=error)


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """In which single way a chain is wrong. The default is wrong in one way: it catches nothing.

    Attributes:
        owner_id: who it says it is.
        told_execution: whether the service is told which execution the lease belongs to.
        outputs: what leaves the chain; None is what the release call left.
    """

    owner_id: str = OWNER_OF_THE_EXECUTION
    told_execution: bool = True
    outputs: str | None = "{% {'work': $states.input, 'release': $states.result.Payload} %}"


def chain(
    form: Form,
    work: sfn.IChainable,
    *,
    acquire: lambda_.IFunction | None = None,
    **mistake: Any,  # noqa: ANN401 - a Mistake's
) -> Chain:
    """The wrong kind of a guard."""
    locks = form.forms.locks
    return Chain(
        form,
        "Chain",
        acquire=acquire or locks.acquire_function,
        release=locks.release_function,
        work=work,
        mistake=Mistake(**mistake),
    )


class Chain(sfn.StateMachineFragment):
    """acquire → acquired? → work → release, and round again without end while it is not."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire: lambda_.IFunction,
        release: lambda_.IFunction,
        work: sfn.IChainable,
        mistake: Mistake,
    ) -> None:
        super().__init__(scope, construct_id)
        request = {
            "lock_name": LOCK,
            "owner_id": mistake.owner_id,
            "owner_name": THIS_EXECUTION,
            **({"execution_arn": THIS_EXECUTION} if mistake.told_execution else {}),
            "lease_seconds": CHAIN_LEASE_SECONDS,
        }
        self._acquire = call(
            self,
            "Acquire",
            acquire,
            payload=sfn.TaskInput.from_object(request),
            outputs=INPUT,
            assign={"lock": RESULT},
        )
        self._acquire.add_retry(errors=["ConnectionError"], interval=Duration.seconds(1))
        owner = {"lock_name": "{% $lock.lock_name %}", "owner_id": "{% $lock.owner_id %}"}
        outputs = {"outputs": mistake.outputs} if mistake.outputs else {}
        self._release = call(
            self, "Release", release, payload=sfn.TaskInput.from_object(owner), **outputs
        )
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
