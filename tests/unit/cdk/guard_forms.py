"""One state machine for each form in which a guard can be used, polling and in the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, Waiting
from fairlock.cdk.guard.standalone import FunctionsByArn

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function"
RELEASE = f"{FUNCTION}:release"

JSONATA = sfn.QueryLanguage.JSONATA
INTERVAL = Duration.seconds(15)


class Form(Construct):
    """A scope of its own, so that every form can call its guard "Guard"."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        locks: FunctionsByArn,
        waiting: Waiting,
        keep_alive: Duration | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.waiting = waiting
        self.keep_alive = keep_alive

    def work(self, name: str = "Charge") -> tasks.LambdaInvoke:
        function = lambda_.Function.from_function_arn(self, f"{name}Function", f"{FUNCTION}:work")
        return tasks.LambdaInvoke.jsonata(self, name, lambda_function=function)

    def old_style_work(self, name: str = "Charge") -> tasks.LambdaInvoke:
        function = lambda_.Function.from_function_arn(self, f"{name}Function", f"{FUNCTION}:work")
        return tasks.LambdaInvoke(self, name, lambda_function=function)

    def guard(self, task: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {
            "lock_name": "{% 'customer/' & $states.input.customer %}",
            "waiting": self.waiting,
            "keep_alive": self.keep_alive,
            **props,
        }
        return LockGuard(self, name, service=self.locks, task=task, **arguments)

    def machine(self, body: sfn.IChainable, **props: Any) -> None:  # noqa: ANN401 - a state machine's
        definition = sfn.DefinitionBody.from_chainable(body)
        sfn.StateMachine(self, "Machine", definition_body=definition, **props)


def build_forms(stack: Stack) -> None:
    locks = FunctionsByArn(
        stack,
        "Locks",
        acquire_function_arn=f"{FUNCTION}:acquire",
        heartbeat_function_arn=f"{FUNCTION}:heartbeat",
        release_function_arn=RELEASE,
    )
    queued = (
        _flat,
        _flat_in_jsonata,
        _chain,
        _task_with_own_catch,
        _state_without_construct,
        _nested,
        _two_in_a_row,
        _map_iterations,
        _parallel_branches,
        _on_timeout,
    )
    for build in (*queued, _express):
        build(Form(stack, _name(build), locks=locks, waiting=Waiting.poll()))
    for build in queued:
        build(Form(stack, f"Queue{_name(build)}", locks=locks, waiting=Waiting.queue()))
    # The states of a guard that polls and is kept alive are those of the forms above.
    polled = (_flat, _flat_in_jsonata, _nested, _on_timeout)
    for prefix, waiting, builds in (
        ("KeepAlive", Waiting.queue(), queued),
        ("KeepAlivePoll", Waiting.poll(), polled),
    ):
        for build in builds:
            name = f"{prefix}{_name(build)}"
            build(Form(stack, name, locks=locks, waiting=waiting, keep_alive=INTERVAL))


def _name(build: Callable[[Form], None]) -> str:
    return "".join(word.title() for word in build.__name__.split("_"))


def _flat(form: Form) -> None:
    guard = form.guard(form.old_style_work(), limit=3, lease=Duration.minutes(2))
    form.machine(guard.next(sfn.Pass(form, "Done")))


def _flat_in_jsonata(form: Form) -> None:
    form.machine(form.guard(form.work()), query_language=JSONATA)


def _chain(form: Form) -> None:
    decide = sfn.Choice.jsonata(form, "Large?")
    decide.when(sfn.Condition.jsonata("{% true %}"), sfn.Succeed(form, "Enough"))
    decide.otherwise(sfn.Fail(form, "Refused", error="Refused"))
    form.machine(form.guard(form.old_style_work().next(decide)))


def _task_with_own_catch(form: Form) -> None:
    work = form.work()
    work.add_catch(sfn.Pass.jsonata(form, "Handled"))
    form.machine(form.guard(work))


def _state_without_construct(form: Form) -> None:
    form.machine(form.guard(sfn.CustomState(form, "Raw", state_json={"Type": "Pass"})))


def _nested(form: Form) -> None:
    inner = form.guard(form.work(), "Inner")
    form.machine(form.guard(inner, "Outer", lock_name="all-customers", limit=10))


def _two_in_a_row(form: Form) -> None:
    first = form.guard(form.work("One"), "First")
    form.machine(first.next(form.guard(form.work("Two"), "Second")))


def _map_iterations(form: Form) -> None:
    each = sfn.Map.jsonata(form, "Each", items=sfn.ProvideItems.jsonata("{% $states.input %}"))
    each.item_processor(form.guard(form.work(), lock_name="one-at-a-time"))
    form.machine(each, query_language=JSONATA)


def _parallel_branches(form: Form) -> None:
    both = sfn.Parallel.jsonata(form, "Both")
    both.branch(form.guard(form.work("Left"), "LeftGuard"))
    both.branch(form.guard(form.work("Right"), "RightGuard"))
    form.machine(both)


def _on_timeout(form: Form) -> None:
    later = sfn.Pass.jsonata(form, "Later")
    guard = form.guard(form.work(), max_wait=Duration.seconds(5), on_timeout=later)
    form.machine(guard.next(sfn.Pass.jsonata(form, "Done")))


def _express(form: Form) -> None:
    form.machine(form.guard(form.work(), express=True), state_machine_type=EXPRESS)


EXPRESS = sfn.StateMachineType.EXPRESS


# Guards that are examined one by one.


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


# Guards in state machines of their own, all in one stack, to be synthesized at once.


class Cases(Stack):
    """One construct a case, which is a method that makes a guard, and mostly a machine."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.locks = self.service("Locks", FUNCTION)
        self.other_locks = self.service("OtherLocks", f"{FUNCTION}:of-another-service")

    def service(self, name: str, prefix: str) -> FunctionsByArn:
        return FunctionsByArn(
            self,
            name,
            acquire_function_arn=f"{prefix}:acquire",
            heartbeat_function_arn=f"{prefix}:heartbeat",
            release_function_arn=f"{prefix}:release",
        )

    def case(self, name: str) -> Case:
        return Case(self, name)


class Case(Construct):
    """A scope of its own."""

    def __init__(self, scope: Cases, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.stack = scope

    def guard(self, name: str = "Guard", task: Any = None, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {"lock_name": f"{self.node.id}/{name}", "service": self.stack.locks, **props}
        return LockGuard(self, name, task=task or self.step(f"{name}Work"), **arguments)

    def step(self, name: str, **props: Any) -> sfn.Pass:  # noqa: ANN401 - a state's
        return sfn.Pass.jsonata(self, name, **props)

    def call(self, name: str, **props: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - a task's
        function = lambda_.Function.from_function_arn(self, f"{name}Function", f"{FUNCTION}:work")
        return tasks.LambdaInvoke.jsonata(self, name, lambda_function=function, **props)

    def machine(self, body: sfn.IChainable, **props: Any) -> None:  # noqa: ANN401 - a machine's
        definition = sfn.DefinitionBody.from_chainable(body)
        sfn.StateMachine(self, "Machine", definition_body=definition, **props)

    def map(
        self, name: str, body: sfn.IChainable, kind: sfn.StateMachineType | None = None
    ) -> sfn.IChainable:
        """A Map; a Distributed Map with children of this kind, if one is given."""
        items = sfn.ProvideItems.jsonata("{% $states.input %}")
        if kind is None:
            return sfn.Map.jsonata(self, name, items=items).item_processor(body)
        children = sfn.DistributedMap.jsonata(self, name, items=items, map_execution_type=kind)
        return children.item_processor(body)
