"""The operations of a lock, over one table."""

from __future__ import annotations

from collections.abc import Iterator

from fairlock.errors import LockItemMalformed
from fairlock.protocol.description import LockDescription
from fairlock.protocol.items import read_state
from fairlock.protocol.model import (
    AcquireRequest,
    ExecutionEnded,
    ForceReleaseRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    LockState,
    ReleaseRequest,
    SeenLock,
)
from fairlock.protocol.outcomes import Grant, NotHeld, Queued, Reaped, Refusal, Released
from fairlock.protocol.schema import lock_key
from fairlock.store.acquire import acquire, already_released
from fairlock.store.administration import describe, force_release, list_locks
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import (
    KeepAliveOutcome,
    close_claim,
    end_claim,
    keep_alive,
    register_claim,
    renew_lease,
)
from fairlock.store.queue import count_ahead, read_lock
from fairlock.store.reap import reap
from fairlock.store.release import release


class LockStore:
    """The lock protocol over one table. Uncontended, each operation is one request.

    Guaranteed: no more owners hold a lock name than the `limit` of any of them. Without a release
    by force, an owner loses its place only after its own end of its lease, whatever the clocks of
    machines show, and not while the workflow it belongs to runs, unless that was never
    told of its grant. The fencing tokens of a lock name always grow.

    Not guaranteed: that a stalled holder notices the end of its lease. Pass the fencing token on to
    the resource that the lock protects, and refuse older tokens there.

    All operations raise `LockStoreUnavailable` when the outcome is unknown; each may be repeated
    with the same owner_id, and then gives the answer that was lost.
    """

    def __init__(self, context: LockContext) -> None:
        self._context = context

    def acquire(
        self, request: AcquireRequest, *, seen: SeenLock | None = None
    ) -> Grant | Queued | Refusal:
        """Takes a permit if one is free, or if a holder's lease is over; else waits or is refused.

        One request if a permit is free or all are out; two to take over an expired holder, and one
        DescribeExecution before if that holder is a workflow; four to join the queue, two to keep
        a place in it (three to learn the position, too). One more, before, if the request names a
        workflow execution: its claim.

        Args:
            request: what is asked for.
            seen: the lock as it was just now, if that is known, for the first call of an owner. If
                others waited for it, and the caller would have to, the caller joins at once, with
                one request less, and without counting them if all of them are named: two less. If
                a permit has become free since, joining is refused, and the caller takes it: one or
                two requests more.
        """
        if request.execution_arn is not None:
            registered = register_claim(self._context, request, request.execution_arn)
            if registered is None:
                return already_released(request)
            request = registered
        return acquire(self._context, request, seen=seen)

    def read_lock(self, lock_name: str) -> SeenLock:
        """The lock as it is at this moment, and its oldest waiters; one strongly consistent read.

        Not guaranteed: that both are of the same moment.
        """
        return read_lock(self._context, lock_name)

    def count_ahead(self, lock_name: str, owner_id: str, *, ticket: int) -> int:
        """How many wait in front of a waiter; one strongly consistent query of their places."""
        now_ms = self._context.aws_clock.now_ms()
        return count_ahead(self._context, lock_name, owner_id, entered_at_ms=ticket, now_ms=now_ms)

    def read_state(self, lock_name: str) -> LockState:
        """The lock as it is at this moment; one strongly consistent read."""
        return read_state(self._context.table.read(lock_key(lock_name)))

    def heartbeat(self, request: HeartbeatRequest) -> Grant | NotHeld:
        """Lets the lease end one lease from now, also one that ran out, if nobody took it over."""
        grant = renew_lease(self._context, request)
        return grant or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)

    def release(
        self, request: ReleaseRequest, *, seen: SeenLock | None = None
    ) -> Released | NotHeld:
        """Gives the permit back if the caller has it, to the oldest waiter if there is one.

        One request if nobody waits; three and a push if somebody does, however many. A repeated
        release is answered "released" again as long as nobody else released in between. One more,
        after, if it belonged to a workflow execution: its claim.

        Args:
            request: what to release.
            seen: the lock as it was at some moment since its grant to this owner, if that is known.
                If others waited, the first of the three requests is left out, and the second too
                if it names the oldest of them. A write succeeds only on what was seen, so an
                outdated state costs requests. Outdated waiters may cost one that has come since,
                with an older place, its precedence: name waiters that were seen just now.
        """
        if request.keep_alive and request.execution_arn is not None:
            task_token = end_claim(self._context, request, request.execution_arn).task_token
            answer = release(self._context, request)
            if task_token is not None:
                self._context.workflows.end_heartbeat(task_token, answer)
            return answer
        answer = release(self._context, request, seen=seen)
        close_claim(self._context, request, answer)
        return answer

    def keep_alive(self, request: KeepAliveRequest) -> KeepAliveOutcome:
        """A heartbeat of a workflow beside its work: two requests.

        Tells a lock that was lost from one that was released because the work has ended, and takes
        the lock again for an execution that had ended and was redriven, if it is free. The fencing
        token is then a new one, which the workflow does not know: its old one is still refused
        where a newer was seen.
        """
        return keep_alive(self._context, request)

    def reap(self, ended: ExecutionEnded) -> Reaped:
        """Frees the locks of a workflow execution that is over, and gives up its places in queues.

        If the execution was redriven since, frees only what an earlier pass has fenced. May be
        repeated, come late, and go on where it ran out of time. What the request says counts only
        as far as Step Functions confirms it: for an execution that runs nothing is freed.

        Raises:
            AskedTooEarly: the execution runs, or has ended just now.
        """
        return reap(self._context, ended)

    def describe(self, lock_name: str) -> LockDescription | None:
        """Holders and waiters of a lock; None if the table knows no lock of this name.

        Two strongly consistent reads, and one more for each MB of waiters.
        """
        return describe(self._context, lock_name)

    def list_locks(
        self, prefix: str = "", *, after: str | None = None
    ) -> Iterator[LockDescription | LockItemMalformed]:
        """The locks whose names begin so, in no order; one request for each MB of the whole table.

        A lock whose items somebody has changed comes as an error, and the others after it.

        Args:
            prefix: the beginning of the names.
            after: the name of a lock that came before, to go on after it.
        """
        return list_locks(self._context, prefix, after=after)

    def force_release(self, request: ForceReleaseRequest) -> Released | None:
        """Takes out the holder of one grant, for the oldest waiter if there is one.

        Two requests if nobody waits; three and a push if somebody does. None if no holder has that
        grant: nothing was written. A repeat is answered "released" again, as long as nobody else
        was released by force in between. Workflows that hold are not stopped by this: their
        heartbeat, if they have one, or their release tells them.
        """
        return force_release(self._context, request)
