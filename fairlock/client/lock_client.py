"""`LockClient`: locks for any Python process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

import boto3

from fairlock.aws.retry import CLIENT_CONFIG
from fairlock.client import arguments
from fairlock.client.arguments import ClientOptions, ClientSettings, LockOptions
from fairlock.client.blocks import LocksInOrder
from fairlock.client.connection import Connection, told_by_stack
from fairlock.client.entered_locks import EnteredLocks
from fairlock.client.heartbeats import Heartbeats
from fairlock.client.leader import Leading
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.lock import Callback, Lock, LockServices
from fairlock.client.reporting import LockEvents
from fairlock.client.table_client import LockAdministration
from fairlock.client.threads import Callbacks
from fairlock.clock import AwsClock, BootClock, Clock, Seconds
from fairlock.errors import ClientUnusable, LockWaitTimeout
from fairlock.names import TABLE_NAME_PARAMETER

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

_of_this_process: Final[weakref.WeakSet[LockClient]] = weakref.WeakSet()


def _reset_in_child() -> None:
    for client in list(_of_this_process):
        client._reset_after_fork()  # noqa: SLF001 - no call for users


if hasattr(os, "register_at_fork"):  # Windows cannot fork.
    os.register_at_fork(after_in_child=_reset_in_child)


@arguments.with_explained_calls
class LockClient(Leading, LockAdministration):
    """Locks in one table, shared with workflows and all other clients of the table.

    Args:
        table_name: name or ARN of the lock table: `LockTableName` of the stack, or what
            `fairlock.create_table` made. None takes it from FAIRLOCK_TABLE_NAME; see `from_stack`
            too.
        session: a boto3 session to make clients from; None takes boto3's default session.
        client: a DynamoDB client to use as it is, instead of one made from the session. Give it
            `fairlock.aws.retry.CLIENT_CONFIG`: with boto3's own time-outs one lost
            reply takes a minute, as long as no other heartbeat of that lock is sent.
        stepfunctions: a client to wake waiting workflows, and to ask whether a workflow still runs;
            None makes one from the session when it is first needed.
        owner_name: label for people; None makes one of host, process id and program.
        lease: default seconds for which a renewal lasts; 60.
        max_wait: default of the longest wait for a lock, in seconds; None for twice the lease, at
            least 120: long enough to outlast a holder that crashed.
        heartbeat_every: seconds between renewals; None for a third of the lease, `math.inf` for
            none but your own.
        safe_period: seconds before the lease's end at which a lock that could not be renewed is
            reported as in danger; None for a third of the lease. (Other lock clients count the
            seconds without a heartbeat; more than half of the lease is logged as a warning.)
        longest_poll: most seconds between two polls while waiting; 5 by default.
        max_workers: most heartbeats under way at a time; 32 by default.
        best_effort_release: what `hold` and `with` do if the release fails but the work did not.
            True, the default: it is logged and the work's result stands. False: it raises.
            `Lock.release` itself always raises what prevents it, in an outage after 5 s.
        on_event: a function for metrics, called with a `LockEvent` for each outcome. It runs in a
            thread of its own, so no request waits for it. Its exceptions are logged.
        clock: None goes by AWS's clock, which each answer of DynamoDB carries, so no machine's
            clock need be right. "system" goes by this machine's, for a DynamoDB behind a proxy that
            removes the Date from the answers; then the clocks of all clients must be right within 1
            s. Tests pass a clock of their own.

    Each number of seconds, here and in the methods, may be a `datetime.timedelta` as well.

    Several threads may use one client. After a fork, the child's copy opens connections and threads
    of its own, and holds no locks. If you passed a client, acquiring in the child raises
    `ClientUnusable`.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    def __init__(
        self,
        table_name: str | None = None,
        *,
        session: boto3.Session | None = None,
        client: DynamoDBClient | None = None,
        stepfunctions: SFNClient | None = None,
        clock: Clock | Literal["system"] | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self._settings = ClientSettings(
            table_name, clock=clock, machine_clock=BootClock, **settings
        )
        self._settings.timing.warn_of_other_meaning(self._settings.lease)
        self._connection = Connection(
            session=session,
            dynamodb=client,
            stepfunctions=stepfunctions,
            most_at_once=self._settings.max_workers,
        )
        self._closed = False
        self._services = self._new_services()
        _of_this_process.add(self)

    @classmethod
    def from_stack(
        cls,
        stack_name: str,
        *,
        session: boto3.Session | None = None,
        **settings: Unpack[ClientOptions],
    ) -> Self:
        """Makes a client for the table of a shared service. Sends one request.

        It reads a parameter of Systems Manager, so the caller needs `ssm:GetParameter` on
        `/fairlock/<stack_name>/LockTableName`. It takes the other arguments of this class, except
        the AWS clients.

        Raises:
            LockStoreMisconfigured: no stack of this name shares a service in the account and the
                region of the session, or permission, credentials or region are missing.
            LockStoreUnavailable: the Parameter Store did not answer; repeat the call.
            InvalidRequest: no stack can have this name, or a setting breaks its rule.
        """
        Connection.check("session", session, has="client")
        ClientSettings("unread", machine_clock=BootClock, **settings)  # Before the request.
        maker: Any = session or boto3
        table = told_by_stack(
            stack_name, TABLE_NAME_PARAMETER, lambda: maker.client("ssm", config=CLIENT_CONFIG)
        )
        return cls(table, session=session, **settings)

    def _new_services(self) -> LockServices:
        settings, client = self._settings, weakref.ref(self)
        return LockServices(
            settings=settings,
            connection=self._connection,
            aws_clock=AwsClock(settings.clock, uses_dates=settings.uses_dates),
            local_waiters=LocalWaiters(settings.clock),
            heartbeats=Heartbeats(
                settings.clock,
                most_at_once=settings.max_workers,
                is_wanted=lambda: client() is not None,
            ),
            callbacks=Callbacks(),
            events=LockEvents(settings.on_event),
            entered=EnteredLocks(),
        )

    def _reset_after_fork(self) -> None:
        """Forgets threads, connections, and every mutex that a thread of the parent may hold."""
        self._connection.forget()
        self._services = self._new_services()

    def acquire(
        self,
        name: str,
        *,
        lease: Seconds | None = None,
        max_wait: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
        shared: bool = False,
        max_hold: Seconds | None = None,
        only_newest: bool | int = False,
    ) -> Lock:
        """Acquires the lock, or waits for it in the queue; then renews it until you release it.

        If a permit is free, this is one request. Otherwise the client joins the queue and polls:
        one strongly consistent read each time, and two requests every two minutes to keep its
        place.

        Args:
            name: 1 to 512 bytes of UTF-8 in NFC (see `unicodedata.normalize`), without control or
                invisible characters, blanks other than spaces, and blanks at its ends.
            lease: seconds, 1 to 43,200 (12 h).
            max_wait: longest seconds to wait; 0 does not wait, at most 7 days; None waits as long
                as `longest_wait` says. A holder that
                crashed is replaced its lease + 5 s after its last renewal.
            limit: number of permits of this lock, 1 to 100; of readers if it is shared, where 1
                means 20.
            data: a JSON object of at most 2 KiB that others can read while the lock is held.
            owner_name: label for people, of this one lock.
            on_lost: called once with the lock and the reason, a text, if the lock is lost: the end
                of its lease, another owner in its place, a guarded write that was refused.
            on_danger: called with the same if the lease is near its end and could not be renewed;
                the reason is the failure of the last heartbeat, or that `max_hold` is nearly over.
            shared: whether others that share the lock may hold it meanwhile. A caller that does not
                share the lock holds it alone, and later readers do not overtake it.
            max_hold: longest seconds to hold it; it is not renewed past that. `on_danger` is called
                `safe_period` before the end; then the lock is lost, and released.
            only_newest: whether the grant of a newer caller supersedes this one. True orders them
                by the time of their calls; a number is this caller's version, the highest wins.

        Raises:
            LockWaitTimeout: the lock was not handed over in time. Nothing is held or waited for.
            Superseded: a newer version was granted the lock, with `only_newest`. Nothing is held.
            LockStoreUnavailable: the outcome was still unknown when the wait ended. If the lock was
                granted, the grant ends with its lease.
            LockStoreMisconfigured: no such table, no permission, no credentials, no region.
            LockItemMalformed: another program has changed an item of the lock table.
            ClientUnusable: this client was closed.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        options = LockOptions(
            *(name, lease, max_wait, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold, only_newest),
        )
        return self._acquire(options)

    def try_acquire(
        self,
        name: str,
        *,
        lease: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
        shared: bool = False,
        max_hold: Seconds | None = None,
    ) -> Lock | None:
        """Acquires the lock if that is possible at once; returns None if others hold it.

        Test for None before `with`, which takes no None: `if lock := locks.try_acquire(name):`,
        and `with lock:` below it. It never queues. A holder that crashed is replaced its lease + 5
        s after its last renewal, at the first try. Arguments and errors are those of `acquire`,
        except `LockWaitTimeout`.

        Raises:
            LockStoreUnavailable: outcome unknown; never reported as a grant, nor as None.
        """
        options = LockOptions(
            *(name, lease, 0, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold),
        )
        try:
            return self._acquire(options)
        except LockWaitTimeout:
            return None

    @contextmanager
    def _block(self, options: LockOptions[Callback], *, reentrant: bool) -> Iterator[Lock]:
        # A generator: it releases even if an interrupt has cut off its block.
        outer = self._services.entered.reentered(options) if reentrant else None
        if isinstance(outer, Lock):
            yield outer
            if outer.lost.is_set():  # The outer block notes it on what the body raises.
                outer.check()
            return
        lock = self._acquire(options)
        try:
            with lock:
                yield lock
        # Also after `with lock` has ended: an interrupt may come between its exit and here, or in
        # the middle of its entry, before it had anything to leave.
        except BaseException:
            _release_if_held(lock)
            raise

    @contextmanager
    def _block_of_all(self, plan: LocksInOrder[Lock]) -> Iterator[tuple[Lock, ...]]:
        with ExitStack() as stack:
            with plan.begun():
                for name in plan.in_order:
                    block = self._block(plan.options_of(name), reentrant=False)
                    plan.held[name] = stack.enter_context(block)
            yield plan.all_held()

    def adopt(
        self,
        name: str,
        owner_id: str,
        *,
        lease: Seconds | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
    ) -> Lock:
        """Takes charge of a lock that a function, a workflow or another process has acquired.

        From now on, this client renews it until it is released or lost. The fencing token stays the
        same. This takes one read and one heartbeat. If two processes renew one lock, a release by
        one is a loss for the other. Do not release the lock of a guard with `keep_alive`: its
        heartbeat would take that for a loss, and stop its work.

        Args:
            name: the lock.
            owner_id: of the acquisition: `owner_id` of the answer, or of the other process's lock.
                It is the proof of ownership: pass it on as you would a password.
            lease: seconds; from now on the lease of this lock. None leaves it as it is.
            on_lost: as of `acquire`.
            on_danger: as of `acquire`.

        Raises:
            LockLost: this owner_id does not hold the lock; nothing was written.
            LockStoreUnavailable: outcome unknown. The lock is held as before.
            InvalidRequest: an argument breaks its rule, or the lease that the lock has is too short
                for this client's heartbeats; nothing was written.
            LockStoreMisconfigured, LockItemMalformed, ClientUnusable: as of `acquire`.
        """
        wanted = LockOptions(*(name, lease, 0, 1, None, None, on_lost, on_danger))
        self._require_open()
        adopted = self._services.adopt(owner_id, wanted)
        self._require_open()
        lock = Lock(self._services, *adopted)
        try:
            lock._begin_heartbeats()  # noqa: SLF001 - see `_acquire`
        except BaseException:
            lock._end_heartbeats()  # noqa: SLF001 - same
            raise
        return lock

    def close(self, *, release: bool = False) -> None:
        """Ends heartbeats and threads, and closes the connections that this client made.

        In a signal handler, raise SystemExit and let `with` close the client: a handler cannot
        release a lock that is in the middle of a request.

        A closed client acquires nothing. A lock that is still held keeps its methods: `release` and
        `heartbeat` send one request each, over a new connection.

        Args:
            release: whether to release all locks that are held; failures are logged. Otherwise they
                are held until their leases end.

        Raises:
            InvalidRequest: `release` is neither True nor False; nothing is closed.
        """
        arguments.require_bool("release", release)
        self._closed = True
        services = self._services
        # After `_closed`: a lock that is granted from here on is released by its own `acquire`.
        handles = list({*services.heartbeats.handles(), *services.unreleased.unsettled()})
        is_interrupted = any(handle.is_interrupted for handle in handles)
        if release and handles:
            services.heartbeats.release_all(handles)
        services.heartbeats.close(wait=not is_interrupted)
        services.callbacks.close()
        services.events.close()
        self._connection.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Closes, and releases all locks that are held."""
        self.close(release=True)

    def _acquire(self, options: LockOptions[Callback]) -> Lock:
        self._require_open()
        services = self._services
        acquisition = services.acquisition(options, self._require_open)
        lock = None
        # Before the first request: if an interrupt cuts off the cleanup below, the end of the
        # client finds it here, and leaves the queue.
        services.unreleased.add(acquisition)
        try:
            granted = acquisition.run()
            if granted is not None:
                lock = Lock(services, acquisition.request, options, granted)
                # Not by `Lock` itself: an interrupt at its end would leave them without a lock.
                lock._begin_heartbeats()  # noqa: SLF001 - of its own lock
                acquisition.settle()
                acquisition.report_grant(granted)
            services.unreleased.discard_if_settled(acquisition)
        except BaseException:  # Interrupted, or no thread can be started for its heartbeats.
            if lock is None:
                acquisition.undo()
            else:
                _release_if_held(lock)
            services.unreleased.discard_if_settled(acquisition)
            raise
        if lock is None:
            raise acquisition.timed_out()
        # `close` in another thread has taken its list of locks before this one was in it.
        if self._closed:  # In this moment: nothing would renew it.
            lock.release()
            self._require_open()
        return lock

    def _require_open(self) -> None:
        if self._closed:
            raise ClientUnusable("this LockClient is closed: make another one")


def _release_if_held(lock: Lock) -> None:
    """Releases after an interrupt that came when no one had the lock, which else is renewed."""
    if lock.remaining:
        with suppress(Exception):
            lock.release()
