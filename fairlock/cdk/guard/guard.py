"""`LockGuard`: runs a part of a workflow while it holds a lock."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from fairlock.cdk.fragments import (
    Fragment,
    WorkflowVariable,
    check_flag,
    check_place,
    jsonata,
    require,
)
from fairlock.cdk.guard.guard_arguments import (
    check_service,
    check_work,
    checked_keep_alive_seconds,
    checked_lease_seconds,
    checked_limit,
    checked_only_newest,
    literal_lock_name,
    names_in_order,
    note_guarded,
)
from fairlock.cdk.guard.guard_rules import GuardInMachine, checked_end
from fairlock.cdk.guard.guard_states import (
    GuardStates,
    is_bare_task,
    releases,
    work_beside_heartbeat,
    work_then_release,
)
from fairlock.cdk.guard.service_calls import AcquireOptions
from fairlock.cdk.guard.waiting import (
    DOES_NOT_WAIT,
    NextStates,
    Waiting,
    checked_max_wait_seconds,
    checked_waiting,
)
from fairlock.cdk.machines import MachineChecks
from fairlock.cdk.service.service_base import ILockService
from fairlock.errors import explained
from fairlock.wire.rules import require_one_way


class LockGuard(Fragment):
    """Acquires a lock, runs a task or a chain of states, and releases the lock.

    Guarantees:
        * The task gets the guard's input, and the guard returns the task's output (integers beyond
          2^53 excepted, as in every JSONata state).
        * An error of the task leaves the guard by its own name and cause, after the release. A
          release that fails never replaces a result or an error; then the lock ends with the
          execution.
        * Each run of the guard is an acquisition of its own: each iteration of a Map waits for the
          lock.

    Not guaranteed:
        * An end that no state can catch (StopExecution, the machine's own timeout,
          `States.Runtime`) leaves the lock to the service's reaper, or to the end of its lease if
          no event arrives. While the execution runs, its lease is extended (not in Express).
        * If the guard is in a branch of a Parallel or in a Map, and a sibling fails, Step
          Functions stops the branch without running any Catch; if the execution goes on, so does
          its lock. Give each branch a Catch of its own there, or put the guard around the whole.
        * A Lambda function that is already running continues when its workflow is stopped. Pass it
          the fencing token, and make its data store refuse an older one.
        * Redrive of an execution that was stopped inside the guard repeats the guarded state
          without acquiring, unless `keep_alive` is given.

    A single task state that has no transitions of its own costs 3 more state transitions (polling:
    4; keep_alive: 2 more, and 1 a heartbeat). Any other task runs as the branch of a Parallel, for
    one more: it can use Choice, Catch and Succeed, and its variables stay in it. In a JSONata
    machine make those states by `.jsonata(…)`: CDK forgets the machine's language within a branch.
    """

    @explained
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: ILockService,
        task: sfn.IChainable,
        lock_name: str | Sequence[str],
        limit: int | str = 1,
        lease: Duration | None = None,
        max_wait: Duration | None = None,
        waiting: Waiting | None = None,
        keep_alive: Duration | None = None,
        on_timeout: sfn.IChainable | None = None,
        express: bool = False,
        shared: bool = False,
        max_hold: Duration | None = None,
        only_newest: bool | int | str = False,
        on_superseded: sfn.IChainable | None = None,
    ) -> None:
        """Declares the guard.

        Args:
            scope: the parent construct.
            construct_id: prefixes the names of the guard's states.
            service: the lock service, this stack's own or an imported one.
            task: what to guard: a state, a chain, a fragment, another guard.
            lock_name: a literal, JSONata over the guard's input (`{% … %}`), or a JsonPath token;
                or a list of 2 to 20 of these, which it takes in the one order in which all callers
                do, and releases in reverse. `max_wait` counts for all together; in the queue the
                guard gives up at most 5 s late, or a twentieth of `max_wait` if that is longer.
            limit: how many may be inside at once, 1 to 100, or JSONata that gives the number.
            lease: how long the lock outlives a workflow that died, 1 s to 12 h, default 1 minute.
                Work may take longer: no one takes over while the execution runs (Express: they do).
            max_wait: the longest wait, default 30 minutes (Express: 1 minute), from the first
                entry on, exact to two seconds as long as the service answers. The queue needs 5
                seconds at least. Zero skips a busy lock: the guard tries once, joins no queue, and
                goes to `on_timeout` if others hold the lock or wait for it.
            waiting: how to wait, default `Waiting.queue()` (Express: `Waiting.poll()`).
            keep_alive: how often a branch beside the work renews the lease, from 1 s to a third of
                the lease; not in Express workflows. The work is stopped with `LockLost` within one
                interval after the lock is lost, though not by an outage of the service. Each
                heartbeat costs a state transition and six of the history's 25,000 events.
            on_timeout: where to go, with the guard's input, when `max_wait` is over. It runs
                without the lock, and does not continue after the guard, unless it is itself
                connected there. Default: fail with `LockWaitTimeout`.
            express: whether the machine is an Express workflow: those cannot be described.
            shared: whether others that share the lock may be inside meanwhile. Then `limit` is how
                many there may be; 1, the default, means 20.
            max_hold: how long the work may hold the lock at most. The task must be a single state
                whose time-out, with all its retries, is not longer; then it fails with
                `States.Timeout` in time. A function that it has called runs on.
            only_newest: whether the grant of a newer caller supersedes this one. True orders them
                by the time at which they enter the guard; a number, or JSONata that gives one, is
                this caller's version, the highest wins. Refused in a Map whose iterations want the
                same lock.
            on_superseded: where to go, with the guard's input, when a newer version was granted.
                Everything else as of `on_timeout`. Default: fail with `Superseded`.

        Raises:
            InvalidRequest: an argument breaks its rule.
        """
        check_place(scope, construct_id)
        check_service(service, scope=scope)
        check_work(task, on_timeout=on_timeout, on_superseded=on_superseded)
        check_flag("express", express)
        check_flag("shared", shared)
        require_one_way(shared=shared, only_newest=only_newest)
        way = checked_waiting(waiting, express=express)
        acquire = AcquireOptions(
            lease_seconds=checked_lease_seconds(lease),
            limit=checked_limit(limit, shared=shared),
            only_newest=checked_only_newest(only_newest),
            max_wait_seconds=checked_max_wait_seconds(max_wait, way, express=express),
            shared=shared,
        )
        way = way if acquire.max_wait_seconds else DOES_NOT_WAIT
        interval_seconds = checked_keep_alive_seconds(
            keep_alive, lease_seconds=acquire.lease_seconds, express=express
        )
        supersedes, several = acquire.only_newest is not None, isinstance(lock_name, list | tuple)
        rule = "goes with only_newest only: no other guard is superseded"
        require("on_superseded", on_superseded is None or supersedes, rule, only_newest)
        rule = "must be left out for several locks: each name has a newest of its own"
        require("only_newest", not (supersedes and several), rule, only_newest)
        first = WorkflowVariable.of(scope, construct_id)
        order, names = names_in_order(scope, lock_name, stored=f"{first.name}_names")
        # Nothing renews it in an Express workflow. In a Standard workflow it lasts while that runs.
        is_short = 0 < acquire.lease_seconds <= acquire.max_wait_seconds
        rule = (
            f"must be longer than max_wait ({acquire.max_wait_seconds} s) for several locks in an "
            "Express workflow: the first is held while the guard waits for the next"
        )
        require("lease", not (several and express and is_short), rule, f"{acquire.lease_seconds} s")
        end = checked_end(max_hold, task, wait=acquire.max_wait_seconds if several else 0)
        super().__init__(scope, construct_id)
        note_guarded(task)
        self._variables = [first, *(first.of_lock(n) for n in range(2, len(names) + 1))]
        locks = [
            GuardStates(
                scope=self,
                service=service,
                variable=variable,
                options=acquire,
                express=express,
                first=first if several else None,
            )
            for variable in self._variables
        ]
        failed, after_timeout = locks[0].rethrow(), on_timeout or locks[0].timed_out()
        after_error = releases("Release after error", locks, then=failed)
        give_up = releases("Give up", locks, then=after_timeout)
        superseded: list[sfn.TaskStateBase] = []
        if supersedes:
            superseded = releases("Superseded", locks, then=on_superseded or locks[0].superseded())

        bare_task = task if is_bare_task(task) else None  # before it gets its transitions
        work = (
            work_then_release(task, locks, on_error=after_error[-1])
            if interval_seconds is None
            else work_beside_heartbeat(
                task, locks, interval_seconds=interval_seconds, on_error=after_error[-1]
            )
        )
        gives_up = {
            "on_timeout": (on_timeout, give_up),
            "on_superseded": (on_superseded, superseded),
        }
        granted: sfn.IChainable = work
        own: list[sfn.State] = []
        for number in reversed(range(len(names))):
            enter = locks[number].enter(names[number])
            next_states = NextStates(
                granted=granted,
                timed_out=give_up[number],
                failed=after_error[number],
                superseded=superseded[number] if superseded else None,
            )
            granted = enter
            enter.next(way.begin(locks[number], next_states))
            placed = GuardInMachine(
                construct=self,
                variable=self._variables[number].name,
                calls=locks[number],
                number=number,
                own=own,
                enter=enter,
                gives_up={name: made[0] for name, (then, made) in gives_up.items() if then},
                work=work.start_state,
                bare_task=bare_task,
                lock_name=literal_lock_name(names[number]),
                waiting=way.shown,
                end=end if number == 0 else None,
            )
            placed.warn_of_missing_part()
            MachineChecks.add(placed)
        self._first = granted if order is None else locks[0].order(order).next(granted)
        self._last = work.end_states
        # As of now: a user may put more states into this scope.
        own += [child for child in self.node.children if isinstance(child, sfn.State)]

    @property
    def fencing_token(self) -> str:
        """The fencing token for a JSONata state inside the guard: `{% $lock_….fencing_token %}`."""
        return self._only_variable("fencing_token").jsonata("fencing_token")

    @property
    def fencing_tokens(self) -> str:
        """The fencing tokens for a JSONata state inside the guard: an object, by lock name."""
        tokens = (
            f"{each.field('lock_name')}: {each.field('fencing_token')}" for each in self._variables
        )
        return jsonata(f"{{{', '.join(tokens)}}}")

    @property
    def fencing_token_path(self) -> str:
        """The fencing token for a JSONPath state inside the guard, for `JsonPath.number_at`."""
        return self._only_variable("fencing_token_path").field("fencing_token")

    @property
    def owner_id(self) -> str:
        """The owner_id for a JSONata state inside the guard, to make guarded writes with.

        Any caller that has it can release the lock.
        """
        return self._only_variable("owner_id").jsonata("owner_id")

    def _only_variable(self, field: str) -> WorkflowVariable:
        rule = "has no meaning for a guard of several locks: each has its own; use fencing_tokens"
        require(field, len(self._variables) == 1, rule, f"{len(self._variables)} locks")
        return self._variables[0]

    @staticmethod
    @explained
    def owner_id_of(scope: IConstruct, construct_id: str) -> str:
        """`owner_id` of the guard that will have this id, for a task made before its guard."""
        return WorkflowVariable.of(scope, construct_id).jsonata("owner_id")

    @staticmethod
    @explained
    def fencing_token_of(scope: IConstruct, construct_id: str) -> str:
        """`fencing_token` of the guard that will have this id, for a task made before its guard."""
        return WorkflowVariable.of(scope, construct_id).jsonata("fencing_token")

    @staticmethod
    @explained
    def fencing_token_path_of(scope: IConstruct, construct_id: str) -> str:
        """`fencing_token_path` of the guard that will have this id."""
        return WorkflowVariable.of(scope, construct_id).field("fencing_token")
