"""Workflows with a guard in every form and every way to wait, around a function or a Wait state.

Their input is any JSON, and the lock one of their own, unless a form says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from fairlock.cdk.fragments import jsonata
from fairlock.cdk.guard import service_calls
from fairlock.cdk.guard.service_calls import ANSWER
from tests.e2e.workflow_parts import (
    INPUT,
    LOCK,
    decide,
    invoke,
    invoke_by_path,
    once_each,
    stay,
)

JSONATA = sfn.QueryLanguage.JSONATA
PER_EXECUTION = "{% 'form/' & $states.context.Execution.Name %}"

SHORT_FALLBACK_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 2
ELSEWHERE_SECONDS: Final = 5
GIVES_UP_SECONDS: Final = (8, 25)
Props = dict[str, Any]
"""Arguments of a guard."""
WAYS: Final = ("Poll", "Queue", "KeptAlive")
"""To wait for a lock that is taken."""


def terms_of(way: str) -> Props:
    """What a guard is told for its way to wait."""
    fallback = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))
    terms: dict[str, Props] = {
        "Poll": {"waiting": Waiting.poll()},
        "Queue": {"waiting": fallback},
        "KeptAlive": {"waiting": fallback, "keep_alive": Duration.seconds(KEEP_ALIVE_SECONDS)},
        "Skip": {"waiting": Waiting.queue(), "max_wait": Duration.seconds(0)},
    }
    return terms[way]


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


class Forms(Stack):
    """One state machine a form; the output `<form>Arn` names it. A stack says which forms."""

    waiting: Waiting

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = function(self, "Worker", handler="worker.handler")
        for form in self.forms():
            CfnOutput(self, f"{form.node.id}Arn", value=form.machine.state_machine_arn)

    def forms(self) -> Sequence[Form]:
        raise NotImplementedError


class GuardForms(Forms):
    """Each form in some ways to wait, and those of single tests; they poll by default."""

    waiting = Waiting.poll()

    def forms(self) -> Sequence[Form]:
        queue = terms_of("Queue")
        return (
            *(
                form(self, f"{way}{form.__name__}", **terms_of(way))
                for form, ways in FORMS.items()
                for way in ways.split()
            ),
            MapUnguarded(self, "MapUnguarded"),
            Waits(self, "Waits"),
            Waits(self, "QueuePatient", waiting=Waiting.queue()),
            Waits(self, "GivesUp", max_wait=Duration.seconds(2)),
            *(
                Waits(self, f"QueueGivesUp{seconds}", **queue, max_wait=Duration.seconds(seconds))
                for seconds in GIVES_UP_SECONDS
            ),
            ExpressFlat(self, "ExpressFlat"),
            Believing(self, "QueueBelieving", waiting=Waiting.queue()),
            KeptAliveBelieving(self, "KeptAliveBelieving", **terms_of("KeptAlive")),
            *self._faulty(),
        )

    def _faulty(self) -> Iterator[Form]:
        """Guards whose lock service misbehaves in one way each, as the lock's name says."""
        assert isinstance(self.locks, LockService)
        names = {
            "ACQUIRE": self.locks.acquire_function.function_name,
            "RELEASE": self.locks.release_function.function_name,
        }
        meddler = function(self, "Meddler", handler="meddling.handler", environment=names)
        self.locks.grant_use(meddler)
        acquires = Spoilt(meddler, self.locks.heartbeat_function, self.locks.release_function)
        releases = Spoilt(self.locks.acquire_function, self.locks.heartbeat_function, meddler)
        seconds: Props = {"max_wait": Duration.seconds(20)}
        yield Faulty(self, "PollNotReleased", service=releases, **seconds)
        yield Faulty(self, "KeptAliveNotReleased", service=releases, **terms_of("KeptAlive"))
        for fault in ("LostReply", "GrantedAndFailed", "ReleasedMeanwhile"):
            yield Faulty(self, fault, service=acquires, **seconds)


@dataclass(frozen=True)
class Spoilt:
    """A lock service with other functions in the place of its own."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction


class Form(Construct):
    """A workflow in a scope of its own. Each form says what its body is.

    Its `terms` are arguments of all its guards, in which forms of the same body differ.
    """

    language: sfn.QueryLanguage | None = None
    kind: sfn.StateMachineType | None = None

    def __init__(
        self,
        scope: Forms,
        construct_id: str,
        *,
        timeout_seconds: int | None = None,
        **terms: Any,  # noqa: ANN401 - a guard's
    ) -> None:
        super().__init__(scope, construct_id)
        self.forms = scope
        self.terms = terms
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(self.body()),
            query_language=self.language,
            state_machine_type=self.kind,
            timeout=None if timeout_seconds is None else Duration.seconds(timeout_seconds),
        )

    def body(self) -> sfn.IChainable:
        raise NotImplementedError

    def work(self, name: str = "Work", payload: object = INPUT) -> tasks.LambdaInvoke:
        """The function in a JSONata state."""
        return invoke(self, name, self.forms.worker, payload)

    def work_by_path(self, name: str = "Work", **options: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - LambdaInvoke's
        """The function in a JSONPath state."""
        return invoke_by_path(self, name, self.forms.worker, **options)

    def guard(self, task: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {
            "service": self.forms.locks,
            "lock_name": PER_EXECUTION,
            "lease": Duration.seconds(30),
            "waiting": self.forms.waiting,
            **props,
            **self.terms,
        }
        return LockGuard(self, name, task=task, **arguments)

    def after(self, guard: LockGuard) -> sfn.IChainable:
        """A state that shows what has left the guard."""
        return guard.next(sfn.Pass.jsonata(self, "After", outputs={"after": INPUT}))


class Flat(Form):
    """A bare task in a JSONata machine."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(self.work())


class FlatPath(Form):
    """A bare task in a JSONPath machine."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.format("form/{}", sfn.JsonPath.string_at("$$.Execution.Name")),
        )


class ChainPath(Form):
    """Two states in a JSONPath machine, and one after the guard."""

    def body(self) -> sfn.IChainable:
        chain = sfn.Pass(self, "First").next(self.work_by_path())
        return self.guard(chain).next(sfn.Pass(self, "After"))


class Decides(Form):
    """Choice, Catch, Succeed and Fail inside the guard, as the input's `way` says."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.after(self.guard(decide(self, self.work())))


class Token(Form):
    """A chain of JSONata states whose second one is given the fencing token."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        token = LockGuard.fencing_token_of(self, "Guard")
        work = self.work(payload={"return": {"token": token}})
        return self.guard(sfn.Pass.jsonata(self, "First").next(work))


class TokenPath(Form):
    """A bare JSONPath task that is given the fencing token."""

    def body(self) -> sfn.IChainable:
        token = sfn.JsonPath.number_at(LockGuard.fencing_token_path_of(self, "Guard"))
        payload = sfn.TaskInput.from_object({"return": {"token": token}})
        return self.guard(self.work_by_path(payload=payload))


class Nested(Form):
    """A guard around a guard, on two locks."""

    def body(self) -> sfn.IChainable:
        inner = self.guard(self.work(), "Inner", lock_name="{% 'inner/' & $states.input.lock %}")
        return self.guard(inner, "Outer", lock_name="{% 'outer/' & $states.input.lock %}")


class Shares(Form):
    """Stays inside a lock of the input's `lock` and `limit`."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        limit = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"
        return self.guard(stay(self), lock_name=LOCK, limit=limit)


class Map(Form):
    """Iterations that want the same lock."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return once_each(self, self.each())

    def each(self) -> sfn.IChainable:
        return self.guard(stay(self))


class MapUnguarded(Map):
    """The same without a guard."""

    def each(self) -> sfn.IChainable:
        return stay(self)


class Elsewhere(Form):
    """Waits for some seconds at most, goes another way then, and ends there."""

    def body(self) -> sfn.IChainable:
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        max_wait = Duration.seconds(ELSEWHERE_SECONDS)
        lock_name = sfn.JsonPath.string_at("$.lock")
        work = self.work_by_path()
        return self.after(
            self.guard(work, lock_name=lock_name, max_wait=max_wait, on_timeout=later)
        )


class Waits(Form):
    """A bare task in a JSONPath machine, on the input's `lock`."""

    def body(self) -> sfn.IChainable:
        return self.guard(self.work_by_path(), lock_name=sfn.JsonPath.string_at("$.lock"))


FORMS: Final[Mapping[type[Form], str]] = {
    Flat: "Queue",
    FlatPath: "Poll Skip",
    ChainPath: "KeptAlive",
    Decides: "Poll KeptAlive",
    Token: "Queue KeptAlive",
    TokenPath: "Poll",
    Nested: "Queue",
    Shares: "Poll Queue KeptAlive",
    Map: "Queue",
    Elsewhere: "Poll KeptAlive Skip",
    Waits: "Skip",
}
"""In which ways to wait there is one."""


class ExpressFlat(Form):
    """A bare task in an Express workflow."""

    language = JSONATA
    kind = sfn.StateMachineType.EXPRESS

    def body(self) -> sfn.IChainable:
        return self.guard(self.work(), express=True, max_wait=Duration.seconds(30))


class Faulty(Form):
    """A bare task; the lock's name begins with the name of the form, which the meddler reads."""

    def body(self) -> sfn.IChainable:
        lock_name = f"{{% '{self.node.id}/' & $states.context.Execution.Name %}}"
        return self.after(self.guard(self.work(), lock_name=lock_name))


class Believing(Waits):
    """The negative control: without the check that an answer is to this very acquisition."""

    def body(self) -> sfn.IChainable:
        with believing_any_answer():
            return super().body()


class KeptAliveBelieving(Shares):
    """The same with a heartbeat."""

    def body(self) -> sfn.IChainable:
        with believing_any_answer():
            return super().body()


@contextmanager
def believing_any_answer() -> Iterator[None]:
    """Guards that are made meanwhile do not check whose answers they get."""

    def believed(_own: object, answer: str, *, then: str, **_condition: str) -> str:
        return jsonata(f"({ANSWER} := {answer}; {then})")

    with patch.object(service_calls, "if_own", believed):
        yield
