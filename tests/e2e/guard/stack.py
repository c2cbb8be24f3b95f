"""Workflows with a guard in every form and every way to wait, around a function or a Wait state.

Their input is any JSON, and the lock one of their own, unless a form says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from fairlock.cdk.fragments import jsonata
from fairlock.cdk.guard import service_calls
from fairlock.cdk.guard.service_calls import ANSWER
from tests.e2e.workflow_parts import INPUT, LOCK, invoke, stay

JSONATA: Final = sfn.QueryLanguage.JSONATA
PER_EXECUTION: Final = "{% 'form/' & $states.context.Execution.Name %}"
PER_EXECUTION_BY_PATH: Final = sfn.JsonPath.format(
    "form/{}", sfn.JsonPath.string_at("$$.Execution.Name")
)
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"
SHORT_FALLBACK_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 2
ELSEWHERE_SECONDS: Final = 5
GIVES_UP_SECONDS: Final = (8, 25)
Props = dict[str, Any]
"""Arguments of a construct, mostly of a guard."""
EXPRESS: Final[Props] = {"state_machine_type": sfn.StateMachineType.EXPRESS}


def function(scope: Construct, construct_id: str, **props: Any) -> lambda_.Function:  # noqa: ANN401 - a function's
    """A function of the directory `worker`."""
    return lambda_.Function(
        scope,
        construct_id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        code=lambda_.Code.from_asset(str(Path(__file__).parent / "worker")),
        timeout=Duration.minutes(5),
        **props,
    )


def shared_worker(scope: Construct) -> lambda_.Function:
    """The function that does as its input says, one for all stacks: it starts cold once."""
    app = scope.node.root
    assert isinstance(app, App)
    stack = app.node.try_find_child("Worker")
    if stack is None:
        return function(Stack(app, "Worker"), "Worker", handler="worker.handler")
    worker = stack.node.find_child("Worker")
    assert isinstance(worker, lambda_.Function)
    return worker


class Form(Construct):
    """The scope of a workflow. Its `terms` are arguments of all its guards."""

    def __init__(self, scope: Forms, construct_id: str, terms: Props) -> None:
        super().__init__(scope, construct_id)
        self.forms = scope
        self.terms = terms

    def work(self, name: str = "Work", payload: object = INPUT) -> tasks.LambdaInvoke:
        """The function in a JSONata state."""
        return invoke(self, name, self.forms.worker, payload)

    def work_by_path(self, name: str = "Work", **options: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - LambdaInvoke's
        """The function in a JSONPath state."""
        return tasks.LambdaInvoke.json_path(
            self,
            name,
            lambda_function=self.forms.worker,
            output_path="$.Payload",
            retry_on_service_exceptions=False,
            **options,
        )

    def guard(self, task: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {
            "service": self.forms.locks,
            "lock_name": self.forms.lock_name,
            "waiting": self.forms.waiting,
            **props,
            **self.terms,
        }
        return LockGuard(self, name, task=task, **arguments)

    def after(self, guard: LockGuard) -> sfn.IChainable:
        """A state that shows what has left the guard."""
        return guard.next(sfn.Pass.jsonata(self, "After", outputs={"after": INPUT}))


Body = Callable[[Form], sfn.IChainable]


class Forms(Stack):
    """One state machine a form; the output `<form>Arn` names it. A stack says which forms."""

    waiting = Waiting.queue()
    lock_name = LOCK

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.declare()

    def declare(self) -> None:
        """Adds the forms."""
        raise NotImplementedError

    @cached_property
    def worker(self) -> lambda_.Function:
        return shared_worker(self)

    def add(
        self,
        name: str,
        body: Body,
        *,
        language: sfn.QueryLanguage | None = JSONATA,
        machine: Props | None = None,
        **terms: Any,  # noqa: ANN401 - a guard's
    ) -> sfn.StateMachine:
        """Adds a form: a state machine with these properties, whose guards have these terms."""
        form = Form(self, name, terms)
        definition = sfn.DefinitionBody.from_chainable(body(form))
        props: Props = {
            "definition_body": definition,
            "query_language": language,
            **(machine or {}),
        }
        made = sfn.StateMachine(form, "Machine", **props)
        CfnOutput(self, f"{name}Arn", value=made.state_machine_arn)
        return made


class GuardForms(Forms):
    """Each form in some ways to wait, and those of single tests; they poll by default."""

    waiting = Waiting.poll()
    lock_name = PER_EXECUTION

    def declare(self) -> None:
        ways = ways_to_wait()
        for body, in_ways, language in FORMS:
            name = body.__name__.title().replace("_", "")
            for way in in_ways.split():
                self.add(f"{way}{name}", body, language=language, **ways[way])
        self.add("Waits", waits, language=None)
        self.add("QueuePatient", waits, language=None, waiting=Waiting.queue())
        self.add("GivesUp", waits, language=None, max_wait=Duration.seconds(2))
        for seconds in GIVES_UP_SECONDS:
            terms = {**ways["Queue"], "max_wait": Duration.seconds(seconds)}
            self.add(f"QueueGivesUp{seconds}", waits, language=None, **terms)
        half_a_minute = Duration.seconds(30)
        self.add("ExpressFlat", flat, machine=EXPRESS, express=True, max_wait=half_a_minute)
        with believing_any_answer():
            self.add("QueueBelieving", waits, language=None, waiting=Waiting.queue())
            self.add("KeptAliveBelieving", shares, **ways["KeptAlive"])
        self._add_faulty(ways["KeptAlive"])

    def _add_faulty(self, kept_alive: Props) -> None:
        """Guards whose lock service misbehaves in one way each, as the lock's name says."""
        assert isinstance(self.locks, LockService)
        acquire, release = self.locks.acquire_function, self.locks.release_function
        names = {"ACQUIRE": acquire.function_name, "RELEASE": release.function_name}
        meddler = function(self, "Meddler", handler="meddling.handler", environment=names)
        self.locks.grant_use(meddler)
        acquires = Spoilt(meddler, self.locks.heartbeat_function, release)
        releases = Spoilt(acquire, self.locks.heartbeat_function, meddler)
        seconds: Props = {"max_wait": Duration.seconds(20)}
        self.add("PollNotReleased", faulty, service=releases, **seconds)
        self.add("KeptAliveNotReleased", faulty, service=releases, **kept_alive)
        for fault in ("LostReply", "GrantedAndFailed", "ReleasedMeanwhile"):
            self.add(fault, faulty, service=acquires, **seconds)


def ways_to_wait() -> dict[str, Props]:
    """What a guard is told for its way to wait for a lock that is taken."""
    queue = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))
    return {
        "Poll": {"waiting": Waiting.poll()},
        "Queue": {"waiting": queue},
        "KeptAlive": {"waiting": queue, "keep_alive": Duration.seconds(KEEP_ALIVE_SECONDS)},
        "Skip": {"waiting": Waiting.queue(), "max_wait": Duration.seconds(0)},
    }


@dataclass(frozen=True)
class Spoilt:
    """A lock service with other functions in the place of its own."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction


def flat(form: Form) -> sfn.IChainable:
    """A bare task."""
    return form.guard(form.work())


def flat_path(form: Form) -> sfn.IChainable:
    """A bare task, and a lock, in JSONPath."""
    return form.guard(form.work_by_path(), lock_name=PER_EXECUTION_BY_PATH)


def chain_path(form: Form) -> sfn.IChainable:
    """Two states, and one after the guard, in JSONPath."""
    chain = sfn.Pass(form, "First").next(form.work_by_path())
    return form.guard(chain).next(sfn.Pass(form, "After"))


def decides(form: Form) -> sfn.IChainable:
    """Succeed, Fail, or the work, whose error "Known" is handled: as the input's `way` says."""
    ends = {
        "succeed": sfn.Succeed.jsonata(form, "Succeed", outputs="succeeded"),
        "fail": sfn.Fail.jsonata(form, "Fail", error="Refused", cause="by choice"),
    }
    which = sfn.Choice.jsonata(form, "Which?")
    for way, end in ends.items():
        which.when(sfn.Condition.jsonata(f"{{% $states.input.way = '{way}' %}}"), end)
    handled = sfn.Pass.jsonata(form, "Handled", outputs="handled")
    work = form.work().add_catch(handled, errors=["Known"])
    return form.after(form.guard(which.otherwise(work)))


def token(form: Form) -> sfn.IChainable:
    """A chain whose second state is given the fencing token."""
    payload = {"return": {"token": LockGuard.fencing_token_of(form, "Guard")}}
    return form.guard(sfn.Pass.jsonata(form, "First").next(form.work(payload=payload)))


def nested(form: Form) -> sfn.IChainable:
    """A guard around a guard, on two locks."""
    inner = form.guard(form.work(), "Inner", lock_name="{% 'inner/' & $states.input.lock %}")
    return form.guard(inner, "Outer", lock_name="{% 'outer/' & $states.input.lock %}")


def shares(form: Form) -> sfn.IChainable:
    """Stays inside a lock of the input's `lock` and `limit`."""
    return form.guard(stay(form), lock_name=LOCK, limit=LIMIT)


def elsewhere(form: Form) -> sfn.IChainable:
    """Waits for some seconds at most, goes another way then, and ends there."""
    later = sfn.Pass.jsonata(form, "Later", outputs={"later": INPUT})
    max_wait = Duration.seconds(ELSEWHERE_SECONDS)
    name = sfn.JsonPath.string_at("$.lock")
    work = form.work_by_path()
    return form.after(form.guard(work, lock_name=name, max_wait=max_wait, on_timeout=later))


def waits(form: Form) -> sfn.IChainable:
    """A bare task in JSONPath, on the input's `lock`."""
    return form.guard(form.work_by_path(), lock_name=sfn.JsonPath.string_at("$.lock"))


def faulty(form: Form) -> sfn.IChainable:
    """A bare task; the lock's name begins with the name of the form, which the meddler reads."""
    name = f"{{% '{form.node.id}/' & $states.context.Execution.Name %}}"
    return form.after(form.guard(form.work(), lock_name=name))


FORMS: Final[Sequence[tuple[Body, str, sfn.QueryLanguage | None]]] = (
    (flat, "Queue", JSONATA),
    (flat_path, "Poll Skip", None),
    (chain_path, "KeptAlive", None),
    (decides, "Poll KeptAlive", JSONATA),
    (token, "KeptAlive", JSONATA),
    (nested, "Queue", None),
    (shares, "Poll Queue KeptAlive", JSONATA),
    (elsewhere, "Poll KeptAlive Skip", None),
    (waits, "Skip", None),
)
"""In which ways to wait there is one, and in which language."""


@contextmanager
def believing_any_answer() -> Iterator[None]:
    """The negative control: guards made meanwhile do not check whose answers they get."""

    def believed(_own: object, answer: str, *, then: str, **_condition: str) -> str:
        return jsonata(f"({ANSWER} := {answer}; {then})")

    with patch.object(service_calls, "if_own", believed):
        yield
