"""Guards alone and in state machines, as many as a test likes, and a machine for each form."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from fairlock.cdk.guard.standalone import FunctionsByArn
from tests.unit.cdk.template import Scope, definition_of

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function"

EXPRESS = sfn.StateMachineType.EXPRESS
JSONATA = sfn.QueryLanguage.JSONATA


def functions_by_arn(
    scope: Construct, name: str = "Locks", prefix: str = FUNCTION
) -> FunctionsByArn:
    """A service that takes no time to synthesize."""
    operations = ("acquire", "heartbeat", "release")
    arns = {f"{operation}_function_arn": f"{prefix}:{operation}" for operation in operations}
    return FunctionsByArn(scope, name, **arns)


def request_of(machine: Scope, **more: object) -> dict[str, object]:
    """What the one guard of a machine says in each call of whom it asks for, and more."""
    [variable] = machine.assigned()
    execution = "$states.context.Execution"
    return {
        "lock_name": f"{{% ${variable}.lock_name %}}",
        "owner_id": f"{{% ${variable}.owner_id %}}",
        "owner_name": f"{{% {execution}.Id %}}",
        "execution_arn": f"{{% {execution}.Id %}}",
        "redrive_count": f"{{% $exists({execution}.RedriveCount) ? {execution}.RedriveCount : "
        "null %}",
        "lease_seconds": 120,
        "limit": 3,
        **more,
    }


def machine(
    scope: Construct,
    body: sfn.IChainable | None = None,
    name: str = "Machine",
    **props: Any,  # noqa: ANN401 - a machine's
) -> sfn.StateMachine:
    """A state machine, of a state that does nothing if no body is given."""
    chainable = body or sfn.Pass(scope, f"{name}Work")
    definition = sfn.DefinitionBody.from_chainable(chainable)
    return sfn.StateMachine(scope, name, definition_body=definition, **props)


def role(scope: Construct, name: str = "Role") -> iam.Role:
    return iam.Role(scope, name, assumed_by=iam.AccountRootPrincipal())


class Cases(Stack):
    """One construct a case, which makes guards, and mostly a machine; and guards alone."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.locks = functions_by_arn(self)
        self.other_locks = functions_by_arn(self, "OtherLocks", f"{FUNCTION}:of-another-service")
        self.told: dict[str, str] = {}
        """How synth tells of each case that breaks a rule."""

    def case(self, name: str, told: str = "") -> Case:
        """A sound one, or one that breaks a rule: then `told` begins with the path below it."""
        if told:
            self.told[name] = f"{self.node.path}/{name}/{told}"
        return Case(self, name)

    def guard(self, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        """One in no machine, which polls if nothing else is said."""
        case = Case(self, f"Guard{len(self.node.children)}")
        given = {"lock_name": "x", "waiting": Waiting.poll(), "task": case.step("Work"), **props}
        return case.guard(name, **given)

    def definition(self, **props: Any) -> Scope:  # noqa: ANN401 - a guard's
        return definition_of(self.guard(**props))

    def lock_name(self, lock_name: str) -> str:
        """What a guard's first state makes of a lock name."""
        [lock] = self.guard(lock_name=lock_name).start_state.to_state_json()["Assign"].values()
        return str(self.resolve(lock["lock_name"]))

    def guarded(self, name: str, told: str = "", **props: Any) -> None:  # noqa: ANN401 - a guard's
        """A case with a machine of one guard."""
        case = self.case(name, told)
        case.machine(case.guard(**props))


class Case(Construct):
    """A scope of its own."""

    def __init__(self, scope: Cases, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.stack = scope

    def guard(self, name: str = "Guard", task: Any = None, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {"lock_name": f"{self.node.id}/{name}", "service": self.stack.locks, **props}
        return LockGuard(self, name, task=task or self.step(f"{name}Work"), **arguments)

    def shared(self) -> Any:  # noqa: ANN401 - mistakes are no types
        """A service of another stack."""
        return LockService.from_stack(self, "Shared", stack_name="Fairlock")

    def step(self, name: str, **props: Any) -> sfn.Pass:  # noqa: ANN401 - a state's
        return sfn.Pass.jsonata(self, name, **props)

    def call(self, name: str, **props: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - a task's
        return tasks.LambdaInvoke.jsonata(self, name, lambda_function=self.function(name), **props)

    def function(self, name: str) -> lambda_.IFunction:
        return lambda_.Function.from_function_arn(self, f"{name}Function", f"{FUNCTION}:work")

    @cached_property
    def work(self) -> tasks.LambdaInvoke:
        """The task of the case."""
        return self.call("Call")

    def tell(self, language: str = "JSONata", *, guard: str = "Guard") -> sfn.Pass:
        """A state that needs a guard's fencing token."""
        if language == "JSONata":
            return self.step("Tell", outputs=LockGuard.fencing_token_of(self, guard))
        path = LockGuard.fencing_token_path_of(self, guard)
        return sfn.Pass(self, "Tell", parameters={"token": sfn.JsonPath.number_at(path)})

    def machine(self, body: sfn.IChainable, **props: Any) -> None:  # noqa: ANN401 - a machine's
        machine(self, body, **props)

    def map(
        self, name: str, body: sfn.IChainable, kind: sfn.StateMachineType | None = None
    ) -> sfn.IChainable:
        """A Map; a Distributed Map with children of this kind, if one is given."""
        items = sfn.ProvideItems.jsonata("{% $states.input %}")
        if kind is None:
            return sfn.Map.jsonata(self, name, items=items).item_processor(body)
        children = sfn.DistributedMap.jsonata(self, name, items=items, map_execution_type=kind)
        return children.item_processor(body)


class Form(Case):
    """A guard of a customer's lock around a task, with arguments that all its guards have."""

    def __init__(self, scope: Cases, construct_id: str, **props: Any) -> None:  # noqa: ANN401 - a guard's
        super().__init__(scope, construct_id)
        self._props = {"lock_name": "{% 'customer/' & $states.input.customer %}", **props}

    def guard(self, name: str = "Guard", task: Any = None, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        return super().guard(name, task or self.call("Charge"), **{**self._props, **props})

    def work_in_jsonpath(self) -> tasks.LambdaInvoke:
        return tasks.LambdaInvoke(self, "Charge", lambda_function=self.function("Charge"))


def few(cases: Cases, prefix: str, **props: Any) -> None:  # noqa: ANN401 - a guard's
    """Forms of which each way to wait has states of its own."""
    form = Form(cases, f"{prefix}Flat", **props)
    guard = form.guard(task=form.work_in_jsonpath(), limit=3, lease=Duration.minutes(2))
    form.machine(guard.next(sfn.Pass(form, "Done")))
    form = Form(cases, f"{prefix}FlatInJsonata", **props)
    form.machine(form.guard(), query_language=JSONATA)
    form = Form(cases, f"{prefix}TaskWithOwnCatch", **props)
    form.machine(form.guard(task=form.call("Charge").add_catch(form.step("Handled"))))
    form = Form(cases, f"{prefix}Nested", **props)
    inner = form.guard("Inner")
    form.machine(form.guard("Outer", inner, lock_name="all-customers", limit=10))
    form = Form(cases, f"{prefix}OnTimeout", **props)
    guard = form.guard(max_wait=Duration.seconds(5), on_timeout=form.step("Later"))
    form.machine(guard.next(form.step("Done")))


def more(cases: Cases, prefix: str, **props: Any) -> None:  # noqa: ANN401 - a guard's
    form = Form(cases, f"{prefix}Chain", **props)
    decide = sfn.Choice.jsonata(form, "Large?")
    decide.when(sfn.Condition.jsonata("{% true %}"), sfn.Succeed(form, "Enough"))
    decide.otherwise(sfn.Fail(form, "Refused", error="Refused"))
    form.machine(form.guard(task=form.work_in_jsonpath().next(decide)))
    form = Form(cases, f"{prefix}StateWithoutConstruct", **props)
    form.machine(form.guard(task=sfn.CustomState(form, "Raw", state_json={"Type": "Pass"})))
    form = Form(cases, f"{prefix}TwoInARow", **props)
    first, second = form.guard("First", form.call("One")), form.guard("Second", form.call("Two"))
    form.machine(first.next(second))
    form = Form(cases, f"{prefix}MapIterations", **props)
    each = form.map("Each", form.guard(lock_name="one-at-a-time"))
    form.machine(each, query_language=JSONATA)
    form = Form(cases, f"{prefix}ParallelBranches", **props)
    both = sfn.Parallel.jsonata(form, "Both")
    for side in ("Left", "Right"):
        both.branch(form.guard(f"{side}Guard", form.call(side)))
    form.machine(both)


FEW = ("Flat", "FlatInJsonata", "TaskWithOwnCatch", "Nested", "OnTimeout")
MORE = ("Chain", "StateWithoutConstruct", "TwoInARow", "MapIterations", "ParallelBranches")
FORMS = [
    *("Express", *FEW, *MORE),
    *(f"Queue{name}" for name in FEW),
    *(f"KeepAlive{name}" for name in (*FEW, *MORE)),
    *(f"KeepAlivePoll{name}" for name in FEW),
]


def forms_of_guards(cases: Cases) -> None:
    poll, queue = {"waiting": Waiting.poll()}, {"waiting": Waiting.queue()}
    kept = {"keep_alive": Duration.seconds(15)}
    for build in (few, more):
        build(cases, "", **poll)
        build(cases, "KeepAlive", **queue, **kept)
    few(cases, "Queue", **queue)
    few(cases, "KeepAlivePoll", **poll, **kept)
    form = Form(cases, "Express", **poll)
    form.machine(form.guard(express=True), state_machine_type=EXPRESS)
    assert {form.node.id for form in cases.node.children if isinstance(form, Form)} == {*FORMS}
