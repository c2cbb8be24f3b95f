"""What people write who have not met the known failures: chains that are wrong in one way each."""

from __future__ import annotations

from functools import partial
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockService
from tests.e2e.guard.stack import Form, Forms, function
from tests.e2e.workflow_parts import INPUT, LOCK, RESULT, invoke, once_each, stay

CHAIN_LEASE_SECONDS: Final = 2
EXECUTION: Final = "{% $states.context.Execution.Id %}"
OWNER_OF_THE_EXECUTION: Final = "{% $states.context.Execution.Name %}"
"""As good as its ARN, which may be longer than an owner id."""
OWNER_OF_THE_CALL: Final = "{% $uuid() %}"
"""In the arguments of a call: another one whenever the call is repeated."""
BOTH_RESULTS: Final = "{% {'work': $states.input, 'release': $states.result.Payload} %}"


class KnownFailures(Forms):
    """Their input names the `lock`."""

    def declare(self) -> None:
        assert isinstance(self.locks, LockService)
        names = {"ACQUIRE": self.locks.acquire_function.function_name}
        lossy = function(self, "LossyAcquire", handler="meddling.lossy", environment=names)
        self.locks.grant_use(lossy)
        self.add("MapOneOwner", lambda form: once_each(form, chain(form, stay(form))))
        self.add("CaughtGuard", lambda form: caught(form, form.guard(form.work())))
        self.add("CaughtChain", lambda form: caught(form, chain(form, form.work())))
        self.add("OutputReplaced", lambda form: chain(form, form.work(), outputs=None))
        self.add("LostReplyNewOwner", partial(chain, acquire=lossy, owner_id=OWNER_OF_THE_CALL))


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


def chain(
    form: Form,
    work: sfn.IChainable | None = None,
    *,
    acquire: lambda_.IFunction | None = None,
    owner_id: str = OWNER_OF_THE_EXECUTION,
    outputs: str | None = BOTH_RESULTS,
) -> sfn.Chain:
    """acquire → acquired? → work → release, and round again while it is not; it catches nothing.

    Args:
        form: the machine.
        work: what the lock is for.
        acquire: the function, if it is not the service's.
        owner_id: who it says it is.
        outputs: what leaves the chain; None is what the release call left.
    """
    locks = form.forms.locks
    request = {
        "lock_name": LOCK,
        "owner_id": owner_id,
        "owner_name": EXECUTION,
        "execution_arn": EXECUTION,
        "lease_seconds": CHAIN_LEASE_SECONDS,
    }
    function = acquire or locks.acquire_function
    first = invoke(form, "Acquire", function, request, outputs=INPUT, assign={"lock": RESULT})
    first.add_retry(errors=["ConnectionError"], interval=Duration.seconds(1))
    owner = {"lock_name": "{% $lock.lock_name %}", "owner_id": "{% $lock.owner_id %}"}
    release = invoke(form, "Release", locks.release_function, owner, outputs=outputs)
    again = sfn.Wait.jsonata(form, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1)))
    acquired = sfn.Choice.jsonata(form, "Acquired?")
    inside = sfn.Chain.start(work or stay(form)).next(release)
    acquired.when(sfn.Condition.jsonata("{% $lock.acquired %}"), inside)
    acquired.otherwise(again.next(first))
    return sfn.Chain.custom(first, [release], first.next(acquired))
