"""Workflows that end in all the ways in which a workflow can, with keep_alive and without.

Their input names the `lock`, and how many `seconds` the work takes; with `raise` it fails at the
end. Bare tasks are told to `sleep` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, Waiting
from tests.e2e.guard.stack import INPUT, JSONATA, Form, Forms, Spoilt, function
from tests.e2e.workflow_parts import LOCK, SECONDS, decide, once_each, runtime_error, stay

PLAIN_LEASE_SECONDS: Final = 5
KEEP_ALIVE_LEASE_SECONDS: Final = 6
INTERVAL_SECONDS: Final = 2
FALLBACK_SECONDS: Final = 10
MACHINE_TIMEOUT_SECONDS: Final = 20
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"


class Lifetimes(Forms):
    """Over the service of `Fairlock`, which has a reaper."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        return (
            KeepAliveTask(self, "KeepAlive"),
            KeepAliveChain(self, "KeepAliveChain"),
            KeepAlivePath(self, "KeepAlivePath"),
            KeepAlivePoll(self, "KeepAlivePoll"),
            KeepAliveDecides(self, "KeepAliveDecides"),
            KeepAliveNested(self, "KeepAliveNested"),
            KeepAliveToken(self, "KeepAliveToken"),
            KeepAliveElsewhere(self, "KeepAliveElsewhere"),
            KeepAliveMap(self, "KeepAliveMap"),
            KeepAliveSibling(self, "KeepAliveSibling"),
            KeepAliveRuntime(self, "KeepAliveRuntime"),
            KeepAliveNotReleased(self, "KeepAliveNotReleased"),
            KeepAliveChain(self, "KeepAliveTimeout", timeout_seconds=MACHINE_TIMEOUT_SECONDS),
            Plain(self, "Plain"),
            PlainTask(self, "PlainTask"),
            PlainPoll(self, "PlainPoll"),
            PlainMap(self, "PlainMap"),
            PlainSibling(self, "PlainSibling"),
        )


class Lifetime(Form):
    """A form that may have a timeout of its own, and guards that differ in keep_alive only."""

    language: sfn.QueryLanguage | None = JSONATA
    keeps_alive = False

    def __init__(
        self, scope: Forms, construct_id: str, *, timeout_seconds: int | None = None
    ) -> None:
        Construct.__init__(self, scope, construct_id)
        self.forms = scope
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(self.body()),
            query_language=self.language,
            timeout=None if timeout_seconds is None else Duration.seconds(timeout_seconds),
        )

    def guarded(self, work: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        lease_seconds = KEEP_ALIVE_LEASE_SECONDS if self.keeps_alive else PLAIN_LEASE_SECONDS
        terms = {
            "lock_name": LOCK,
            "limit": LIMIT,
            "lease": Duration.seconds(lease_seconds),
            "max_wait": Duration.minutes(5),
            "keep_alive": Duration.seconds(INTERVAL_SECONDS) if self.keeps_alive else None,
        }
        return self.guard(work, name, **{**terms, **props})

    def guard(self, task: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        """The form's own service, unless another is given."""
        arguments = {"service": self.forms.locks, "waiting": self.forms.waiting, **props}
        return LockGuard(self, name, task=task, **arguments)


class Plain(Lifetime):
    """A chain that waits, without a function."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self))


class KeepAliveChain(Plain):
    keeps_alive = True


class PlainTask(Lifetime):
    """A bare task: the function that does as its input says."""

    def body(self) -> sfn.IChainable:
        return self.guarded(self.work())


class KeepAliveTask(PlainTask):
    keeps_alive = True


class KeepAlivePath(Lifetime):
    """A bare task in a JSONPath machine, and a state after the guard."""

    language = None
    keeps_alive = True

    def body(self) -> sfn.IChainable:
        guard = self.guarded(self.work_by_path(), lock_name=sfn.JsonPath.string_at("$.lock"))
        return guard.next(sfn.Pass(self, "After"))


class PlainPoll(Lifetime):
    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), waiting=Waiting.poll())


class KeepAlivePoll(PlainPoll):
    keeps_alive = True


class KeepAliveDecides(Lifetime):
    """Choice, Catch, Succeed and Fail in the chain; the input's `way` says which."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        guard = self.guarded(decide(self, self.work()))
        return guard.next(sfn.Pass.jsonata(self, "After", outputs={"after": INPUT}))


class KeepAliveNested(Lifetime):
    """A guard around a guard, on two locks, both kept alive."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        inner = self.guarded(stay(self), "Inner", lock_name="{% 'inner/' & $states.input.lock %}")
        return self.guarded(inner, "Outer", lock_name="{% 'outer/' & $states.input.lock %}")


class KeepAliveToken(Lifetime):
    """A bare task that is given the fencing token."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        token = LockGuard.fencing_token_of(self, "Guard")
        return self.guarded(self.work(payload={"return": {"token": token}}))


class KeepAliveElsewhere(Lifetime):
    """Goes another way after five seconds, and ends there."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        return self.guarded(
            stay(self),
            max_wait=Duration.seconds(5),
            on_timeout=sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT}),
        )


class PlainMap(Lifetime):
    """Three iterations that want the same lock."""

    def body(self) -> sfn.IChainable:
        return once_each(self, self.guarded(stay(self)))


class KeepAliveMap(PlainMap):
    keeps_alive = True


class PlainSibling(Lifetime):
    """A branch beside the guard fails after a second; the workflow catches it and goes on."""

    def body(self) -> sfn.IChainable:
        second = sfn.WaitTime.duration(Duration.seconds(1))
        fail = sfn.Fail.jsonata(self, "SiblingFails", error="Sibling", cause="on purpose")
        both = sfn.Parallel.jsonata(self, "Both")
        both.branch(self.guarded(stay(self)))
        both.branch(sfn.Wait.jsonata(self, "SiblingWaits", time=second).next(fail))
        goes_on = sfn.Wait.jsonata(self, "GoesOn", time=sfn.WaitTime.seconds(SECONDS))
        return both.add_catch(goes_on, outputs=INPUT)


class KeepAliveSibling(PlainSibling):
    keeps_alive = True


class PlainRuntime(Lifetime):
    """After its `seconds` the chain meets an error that nothing can catch."""

    language = None

    def body(self) -> sfn.IChainable:
        return self.guarded(runtime_error(self))


class KeepAliveRuntime(PlainRuntime):
    keeps_alive = True


class KeepAliveNotReleased(Lifetime):
    """Every call of release fails, at once and for good."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        locks = self.forms.locks
        service = Spoilt(
            acquire_function=locks.acquire_function,
            heartbeat_function=locks.heartbeat_function,
            release_function=function(self, "Broken", handler="meddling.broken"),
        )
        guard = self.guarded(self.work(), service=service)
        return guard.next(sfn.Pass.jsonata(self, "After", outputs={"after": INPUT}))
