"""The rules for a guard in the state machine in which it ended up, and beside other guards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from aws_cdk import Annotations, Duration, Token
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.fragments import is_jsonata, whole_seconds
from fairlock.cdk.guard.service_calls import ServiceCalls
from fairlock.cdk.machines import Machine, PartOfMachine, Transition, VariableUse, reachable
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.errors import InvalidRequest
from fairlock.text import missing_part

_MIXED: Final = "fairlock:mixedGuards"
_NO_TASK_TOKENS: Final = (
    "must be True in an Express workflow: Step Functions has no task tokens there, "
    "and reports the end of no execution"
)
_REAPED: Final = (
    "must be left out in a Standard workflow: its lock then ends with the execution, not the lease"
)
_IN_A_MAP: Final = (
    "must be left out in a Map whose iterations want the same lock: they would supersede each "
    "other; put the guard around the Map, or name the lock after the item"
)
_LEAVES: Final = (
    "must get its own Catch before LockGuard(…) is called, which then puts the task into a branch: "
    "this one leaves the guard without the release"
)
_ENTERS: Final = (
    "must be reached by its guard only: this way would run it without the lock; lead to the guard "
    "instead, or make a state of its own for this way"
)
NO_LOCK: Final = (
    "must not lead to the task, which would run without the lock: lead to the guard again, or make "
    "a state of its own for this way"
)
_NO_END: Final = (
    "needs a single task state with a time-out: a workflow holds its lock while it runs. Set its "
    "task_timeout (TimeoutSeconds) to a number of seconds; let such a task start a chain as a "
    "workflow of its own"
)
_TOO_EARLY: Final = (
    "must be read by states inside the guard, and this one runs before it: make it a part of the "
    "guarded task, or move it behind the guard"
)
_MISSING_PART: Final = "fairlock:missingPart"
_AFTER_RELEASE: Final = "fairlock:tokenAfterRelease"
_NO_TOKEN: Final = (
    "must not lead to a state that needs this guard's fencing token: on this way there was no "
    "grant, and so there is no token"
)


Faults = Callable[[], Iterable[InvalidRequest]]


def checked_end(max_hold: Duration | None, task: sfn.IChainable, *, wait: int) -> Faults | None:
    """Checks that the guarded task is over in time, and returns the same check of the final task.

    A Retry may be added after this. None if there is no bound.
    """
    if max_hold is None:
        return None
    seconds = whole_seconds("max_hold", max_hold)
    rendered = task.to_state_json() if isinstance(task, sfn.State) else {}
    is_single = rendered.get("Type") == "Task" and not {"Next", "Catch"} & rendered.keys()

    def faults() -> Iterable[InvalidRequest]:
        state = task.to_state_json() if is_single and isinstance(task, sfn.State) else {}
        return faults_of_end(seconds, state, wait_seconds=wait)

    for fault in faults():
        raise fault
    return faults


def faults_of_end(
    max_hold_seconds: int, task: Mapping[str, Any], *, wait_seconds: int = 0
) -> Iterator[InvalidRequest]:
    """The rule that is broken, if a task state may hold a lock for longer than that."""
    timeout = task.get("TimeoutSeconds")
    told = f"{max_hold_seconds} s"
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        yield InvalidRequest(field="max_hold", rule=_NO_END, value=told)
        return
    longest = wait_seconds + timeout
    for pause in chain.from_iterable(map(_pauses, task.get("Retry", ()))):
        if longest > max_hold_seconds:  # A Retry may have a hundred million attempts.
            break
        longest += pause + timeout
    if longest > max_hold_seconds:
        waits = f", and {wait_seconds} s may pass before it for the other locks"
        rule = (
            f"must be as long as the task may take: its TimeoutSeconds of {timeout:g} begin again "
            f"for each retry, after a pause{waits if wait_seconds else ''}; set a shorter time-out "
            "or fewer retries"
        )
        yield InvalidRequest(field="max_hold", rule=rule, value=told)


def _pauses(retry: Mapping[str, Any]) -> Iterator[float]:
    pause, longest = retry.get("IntervalSeconds", 1), retry.get("MaxDelaySeconds", math.inf)
    for _ in range(retry.get("MaxAttempts", 3)):
        yield min(pause, longest)
        pause *= retry.get("BackoffRate", 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class GuardInMachine(PartOfMachine):
    """What the rules have to know of a guard, for each of its locks.

    Attributes:
        number: which of the guard's locks this is, from 0.
        own: the states that it has made, for all of its locks.
        enter: the state with which it begins.
        gives_up: the states that lead on to `on_timeout` and `on_superseded`, by these names, if
            the guard does not fail then.
        work: the state of its work, in which others may be.
        bare_task: the guarded task, if it got its transitions from the guard; None in a branch.
        lock_name: the lock, if its name is known at synth.
        waiting: how it waits, as a caller writes it; None if it does not wait.
        end: the faults of its work against max_hold, if it was told one.
    """

    kind: str = "guard"
    calls: ServiceCalls
    number: int
    own: Sequence[sfn.State]
    enter: sfn.State
    gives_up: Mapping[str, sfn.State]
    work: sfn.State
    bare_task: sfn.State | None
    lock_name: str | None
    waiting: str | None
    end: Faults | None

    def faults(
        self, machines: Sequence[Machine], parts: Sequence[PartOfMachine]
    ) -> Iterator[InvalidRequest]:
        """The rules that the guard breaks; warns of guards of one lock that do not fit together."""
        yield from super().faults(machines, parts)
        express, is_versioned = self.calls.express, self.calls.options.only_newest is not None
        around = [machine for machine in machines if self.variable in machine.placements]
        places = [(machine, at) for machine in around for at in machine.placements[self.variable]]
        for machine, place in places:
            if place.express != express:
                rule = _NO_TASK_TOKENS if place.express else _REAPED
                told = f"{express}, in {machine.path}"
                yield InvalidRequest(field="express", rule=rule, value=told)
        if is_versioned and self.lock_name and any(place.in_map for _, place in places):
            yield InvalidRequest(field="only_newest", rule=_IN_A_MAP, value=self.lock_name)
        if self.end is not None:
            yield from self.end()
        for machine in around:
            steps = machine.transitions
            reads = [use for use in machine.tokens_needed if use.variable == self.variable]
            if self.number == 0:  # The way to the task begins with the first lock.
                yield from self._ways_past_the_guard(steps)
            yield from self._tokens_without_a_grant(steps, reads)
            yield from self._tokens_elsewhere(steps, reads)
        rivals = [part for part in parts if isinstance(part, GuardInMachine) and self._rivals(part)]
        for outer in rivals:
            work = outer.work.state_id
            if any(outer.variable in m.placements and work in at.around for m, at in places):
                rule = (
                    f"must not be that of the guard around this one, {outer.construct.node.path}, "
                    "which holds the lock for as long as this one waits: leave this guard out, or "
                    "name another lock"
                )
                yield InvalidRequest(field="lock_name", rule=rule, value=self.lock_name)
        earlier = parts[: parts.index(self)]
        self._warn_beside([rival for rival in rivals if rival in earlier])

    def _ways_past_the_guard(self, steps: Sequence[Transition]) -> Iterator[InvalidRequest]:
        """Transitions that lead to the task past the grant, or leave it past the release.

        CDK lets you connect every state to a task, and add a Catch to it, after its guard was made.
        """
        task = None if self.bare_task is None else self.bare_task.state_id
        work = {self.work.state_id, task}
        for step in steps:
            if task is not None and step.source == task and step.target not in self._own_names:
                yield _past("task", _LEAVES, step)
        behind = {step.target for step in steps if step.source in work} - work
        ways: dict[str, Iterable[str | None]] = {
            **{field: [state.state_id] for field, state in self.gives_up.items()},
            "task": [None, *behind],
        }
        told: set[Transition] = set()
        for field, begin in ways.items():
            # Only an execution that enters the guard is granted the lock.
            without = reachable(steps, begin, stop=self.enter.state_id)
            found = {step for step in steps if step.target in work and step.source in without}
            for step in sorted(found - told, key=str):
                yield _past(field, _ENTERS if field == "task" else NO_LOCK, step)
            told |= found

    @property
    def _own_names(self) -> set[str]:
        """As they are in the machine, which may have put a prefix before them."""
        return {state.state_id for state in self.own}

    def _tokens_without_a_grant(
        self, steps: Sequence[Transition], reads: Sequence[VariableUse]
    ) -> Iterator[InvalidRequest]:
        """States after a wait that has failed, which need the token of this guard's grant.

        A state that the work leads to as well is refused only if no Choice stands before it: a
        Choice may be there to ask whether the lock was granted.
        """
        enter = self.enter.state_id
        certain = [step for step in steps if not step.by_choice]
        for field, state in self.gives_up.items():
            gives_up = state.state_id
            # An execution that enters the guard again may be granted the lock, and get a token.
            after = reachable(steps, [gives_up], stop=enter)
            otherwise = reachable(steps, [None], stop=gives_up)
            without = after - otherwise | reachable(certain, [gives_up], stop=enter)
            for use in reads:
                if use.state in without:
                    yield InvalidRequest(field=field, rule=_NO_TOKEN, value=use.state)

    def _tokens_elsewhere(
        self, steps: Sequence[Transition], reads: Sequence[VariableUse]
    ) -> Iterator[InvalidRequest]:
        """States that read the token before there is one; warns of those behind the release."""
        own, work = self._own_names, self.work.state_id
        after = reachable(steps, [self.enter.state_id], stop="")
        left = [s.target for s in steps if s.source in own - {work} and s.target not in own]
        handlers = reachable(steps, [each.state_id for each in self.gives_up.values()], stop="")
        released = reachable(steps, set(left) - {work}, stop=self.enter.state_id) - handlers
        for use in reads:
            if use.state not in after:
                yield InvalidRequest(field="fencing_token", rule=_TOO_EARLY, value=use.state)
            elif use.state in released - own:
                text = (
                    f"fencing_token is read by the state {use.state!r} behind this guard, which"
                    " has released the lock by then: write inside the guard"
                )
                Annotations.of(self.construct).add_warning_v2(_AFTER_RELEASE, text)

    def warn_of_missing_part(self) -> None:
        """Warns of a name that was formatted from a value that is missing at synth."""
        if self.lock_name and (part := missing_part(self.lock_name)):
            text = (
                f"lock_name {self.lock_name!r}: its part {part!r} looks like a missing value, and "
                "all callers without the value share this lock; pass the value, or acknowledge "
                "this warning if the name is right"
            )
            Annotations.of(self.construct).add_warning_v2(_MISSING_PART, text)

    def _rivals(self, other: GuardInMachine) -> bool:
        is_known = self.lock_name is not None and other is not self
        return is_known and self._lock == other._lock

    @property
    def _lock(self) -> tuple[str, str | None]:
        """The same for every guard of one lock, whether its service is imported or not."""
        service = self.calls.service
        if isinstance(service, SharedLockService):
            return service.stack_name, self.lock_name
        function = service.acquire_function
        arn = function.function_arn
        return function.node.path if Token.is_unresolved(arn) else arn, self.lock_name

    def _warn_beside(self, rivals: Sequence[GuardInMachine]) -> None:
        """Warns if another guard of the lock has another limit, or another way to wait.

        What then holds is defined, but mostly it is a mistake.
        """
        for other in rivals:
            mine, theirs = self.calls.options, other.calls.options
            is_reader_and_writer = mine.shared != theirs.shared and 1 in {mine.limit, theirs.limit}
            differences = [
                f"{field}={here} here and {there} there"
                for field, here, there in (
                    ("limit", mine.limit, theirs.limit),
                    ("waiting", self.waiting, other.waiting),
                )
                if here != there and None not in {here, there}
                if field != "limit" or not is_reader_and_writer
                if not is_jsonata(here) and not is_jsonata(there)
            ]
            if differences:
                path = other.construct.node.path
                text = f"lock_name {self.lock_name!r} is also that of {path}: "
                Annotations.of(self.construct).add_warning_v2(
                    _MIXED, text + ", and ".join(differences)
                )
                return


def _past(field: str, rule: str, step: Transition) -> InvalidRequest:
    told = f"{step.source or 'StartAt'} -> {step.target}"
    return InvalidRequest(field=field, rule=rule, value=told)
