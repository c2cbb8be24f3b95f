"""The workflows of the smoke test, in one stack: all that AWS surely accepts."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from tests.e2e.guard.stack import (
    EXPRESS,
    LIMIT,
    PER_EXECUTION,
    PER_EXECUTION_BY_PATH,
    Form,
    Forms,
    Props,
    Spoilt,
    flat,
    function,
)
from tests.e2e.lifetimes.stack import ends_after, in_each, stays
from tests.e2e.workflow_parts import INPUT, durable_code, durable_function, invoke, stay
from tests.smoke.separate_stacks import queue_of, short_logs

SHORT_FALLBACK_SECONDS: Final = 10
WAITS_SECONDS: Final = 25
POLLS_SECONDS: Final = 3
DURABLE_SECONDS: Final = 120
KEPT_ALIVE_LEASES: Final = 3


class SmokeWorkflows(Forms):
    """One state machine for each purpose; the output `<purpose>Arn` names it."""

    def __init__(
        self, scope: Construct, construct_id: str, *, locks: LockService, interval_seconds: int
    ) -> None:
        self.interval = Duration.seconds(interval_seconds)
        super().__init__(scope, construct_id, locks=locks)

    def declare(self) -> None:
        fails = self.add("Fails", lambda form: sfn.Fail(form, "Fail", error="Child", cause="none"))
        self.add("Errors", partial(errors, child=fails, interval=self.interval))
        self.add("Holds", stays, limit=LIMIT)  # in the queue, with the fallback period of 5 minutes
        self.add("FormsPath", partial(forms, by_path=True), language=None)
        self.add("FormsJsonata", partial(forms, by_path=False))
        self.add("Integers", integers, language=None)
        self.add("GuardInMap", in_each)
        self.add("GuardInDistributedMap", in_each_child_by_path, language=None)
        self._kept_alive()
        self._ways_to_wait()
        self._status_events()
        self._durable()

    @cached_property
    def worker(self) -> lambda_.Function:
        """In this stack, so that it goes with it."""
        return self._function("Worker", "worker.handler")

    def _function(self, construct_id: str, handler: str) -> lambda_.Function:
        log_group = short_logs(self, f"{construct_id}Logs")
        return function(self, construct_id, handler=handler, log_group=log_group)

    def _kept_alive(self) -> None:
        lease = Duration.seconds(KEPT_ALIVE_LEASES * self.interval.to_seconds())
        terms: Props = {"keep_alive": self.interval, "lease": lease}
        self.add("KeptAlive", stays, **terms)
        assert isinstance(self.locks, LockService)
        acquire, heartbeat = self.locks.acquire_function, self.locks.heartbeat_function
        not_released = Spoilt(acquire, heartbeat, self._function("Refuses", "meddling.refuse"))
        self.add("NotReleased", flat, service=not_released, **terms)

    def _ways_to_wait(self) -> None:
        short = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))
        self.add("Waits", stays, waiting=short, max_wait=Duration.seconds(WAITS_SECONDS))
        polling: Props = {"waiting": Waiting.poll()}
        half_a_minute = Duration.seconds(30)
        self.add("Express", stays, machine=EXPRESS, express=True, max_wait=half_a_minute, **polling)
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        max_wait = Duration.seconds(POLLS_SECONDS)
        self.add("Polls", stays, max_wait=max_wait, on_timeout=later, **polling)

    def _status_events(self) -> None:
        """A machine that is over after five seconds at the latest, and a queue of its events."""
        machine = self.add("Ends", stay, machine=ends_after(5))
        pattern = events.EventPattern(
            source=["aws.states"], detail={"stateMachineArn": [machine.state_machine_arn]}
        )
        CfnOutput(self, "EventsUrl", value=queue_of(machine, pattern))

    def _durable(self) -> None:
        """A durable function that holds locks, and a queue of the events of its executions."""
        with durable_code() as code:
            function = durable_function(
                self,
                "Durable",
                locks=self.locks,
                code=code,
                seconds=DURABLE_SECONDS,
                architecture=lambda_.Architecture.ARM_64,
                log_group=short_logs(self, "DurableLogs"),
            )
        pattern = events.EventPattern(
            source=["aws.lambda"],
            detail_type=["Durable Execution Status Change"],
            detail={"durableExecutionArn": [{"prefix": f"{function.function_arn}:"}]},
        )
        CfnOutput(self, "DurableEventsUrl", value=queue_of(function, pattern))


# What the state machines of the smoke test consist of.

CAUGHT: Final = ("States.Timeout", "States.DataLimitExceeded", "States.ALL")
"""In the order of a Catch that can tell them apart."""


def errors(form: Form, *, child: sfn.IStateMachine, interval: Duration) -> sfn.IChainable:
    """Four guards, of which the input names one; what leaves it is caught around them by name."""
    around = sfn.Parallel.jsonata(form, "Around", outputs="{% $states.result[0] %}")
    which = sfn.Choice.jsonata(form, "Which?")
    soon = sfn.Timeout.duration(Duration.seconds(2))
    for kind, keep_alive in (("Bare", None), ("KeptAlive", interval)):
        calls = invoke(form, f"{kind}Call", form.forms.worker, task_timeout=soon)
        nests = tasks.StepFunctionsStartExecution.jsonata(
            form,
            f"{kind}Nest",
            state_machine=child,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            input=sfn.TaskInput.from_object({}),
        )
        for task in (calls, nests):
            name = task.node.id
            guard = form.guard(task, f"{name}Guard", keep_alive=keep_alive)
            which.when(sfn.Condition.jsonata(f"{{% $states.input.guard = '{name}' %}}"), guard)
    around.branch(which)
    caught = sfn.Pass.jsonata(form, "Caught")
    for name in CAUGHT:
        outputs = {"caught_as": name, "error": "{% $states.errorOutput.Error %}"}
        around.add_catch(caught, errors=[name], outputs=outputs)
    return around


def forms(form: Form, *, by_path: bool) -> sfn.IChainable:
    """Guards in a row, around all kinds of tasks, in a machine of either query language."""

    def made(kind: Any, name: str, **props: Any) -> Any:  # noqa: ANN401 - a state
        return (kind if by_path else kind.jsonata)(form, name, **props)

    work = form.work_by_path if by_path else form.work
    listed = "{% $type($states.input) = 'array' %}"
    is_list = sfn.Condition.is_present("$[0]") if by_path else sfn.Condition.jsonata(listed)
    choice = made(sfn.Choice, "Which?").when(is_list, made(sfn.Fail, "Never", error="Never"))
    inner = "{% 'inner/' & $states.context.Execution.Name %}"
    works = {
        "Bare": work("Work"),
        "Chain": made(sfn.Pass, "First").next(work("Second")),
        "Choice": choice.otherwise(made(sfn.Pass, "Chosen")),
        "Parallel": made(sfn.Parallel, "Both").branch(made(sfn.Pass, "One"), made(sfn.Pass, "Two")),
        "Nested": form.guard(work("Innermost"), "Inner", lock_name=inner),
    }
    lock_name = PER_EXECUTION_BY_PATH if by_path else PER_EXECUTION
    first, *others = [
        form.guard(each, f"{name}Guard", lock_name=lock_name) for name, each in works.items()
    ]
    chain = sfn.Chain.start(first)
    for guard in others:
        chain = chain.next(guard)
    return chain


def integers(form: Form) -> sfn.IChainable:
    """A JSONata task and a JSONPath task; each is given the fencing token of its guard."""
    token = LockGuard.fencing_token_of(form, "JsonataGuard")
    asked = {"types_of": {"fencing_token": token, "now_ms": "{% $millis() %}"}}
    path = sfn.JsonPath.number_at(LockGuard.fencing_token_path_of(form, "PathGuard"))
    asked_by_path = sfn.TaskInput.from_object({"types_of": {"fencing_token": path}})
    works = {
        "Jsonata": form.work("JsonataWork", asked),
        "Path": form.work_by_path("PathWork", payload=asked_by_path),
    }
    both = sfn.Parallel(form, "Both")
    for name, work in works.items():
        lock_name = sfn.JsonPath.format(f"{name}/{{}}", sfn.JsonPath.string_at("$$.Execution.Name"))
        both.branch(form.guard(work, f"{name}Guard", lock_name=lock_name))
    return both


def in_each_child_by_path(form: Form) -> sfn.IChainable:
    """A distributed Map in JSONPath, each of whose child executions wants the lock of its item."""
    each = sfn.DistributedMap(form, "Each", label="Each", items_path="$.items")
    return each.item_processor(form.guard(stay(form)))
