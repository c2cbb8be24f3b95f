"""`LockClient`: locks for any Python process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from leasehold.client import arguments
from leasehold.client.acquisition import Acquisition
from leasehold.client.callbacks import Callbacks
from leasehold.client.connection import Connection
from leasehold.client.event_log import log_event
from leasehold.client.heartbeats import Heartbeats
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.lock import Callback, Lock
from leasehold.client.logging import failsafe_logger
from leasehold.client.process import reset_in_children
from leasehold.client.store_factory import StoreFactory
from leasehold.client.unreleased import UnreleasedHandles
from leasehold.client.worker_pool import WorkerPool
from leasehold.clock import BootClock, Clock
from leasehold.store.events import Observe
from leasehold.store.lease_expiry import StoredExpiry, WatchedExpiry

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

_logger: Final = failsafe_logger()

Takeover = Literal["observed", "stored_expiry"]

DEFAULT_LEASE_SECONDS: Final = 60.0


class LockClient:
    """Locks in one table, shared with workflows and all other clients of the table.

    Args:
        table_name: name or ARN of the lock table: `LockTableName` of the stack, or what
            `leasehold.create_table` made.
        session: a boto3 session to make clients from; None takes boto3's default session.
        client: a DynamoDB client to use as it is, instead of one made from the session. Give it
            `leasehold.dynamodb.client_config.CLIENT_CONFIG`: with boto3's own time-outs one lost
            reply takes a minute, as long as no other heartbeat of that lock is sent.
        stepfunctions: a client to tell waiting workflows with, and to ask whether one still runs;
            None makes one from the session when it is first needed.
        owner_name: label for people; None makes one of host, process id and program.
        lease: seconds that a renewal holds, unless a call says otherwise.
        wait: longest seconds to wait for a lock, unless a call says otherwise; None for twice the
            lease, at least 120: long enough to outlast a holder that crashed.
        heartbeat_every: seconds between renewals; None for a third of the lease, `math.inf` for
            none but your own.
        safe_period: seconds before the lease's end at which a lock that could not be renewed is
            reported as in danger; None for a third of the lease.
        takeover: when a holder that vanished may lose its place. "observed": once this client has
            seen the same renewal for the whole stored lease on its own monotonic clock; no clock
            error of anybody can break it. "stored_expiry": 2 s after the end that the holder wrote,
            for a process that looks only once, or waits for less than a lease; right as long as
            clocks differ by less than 2 s.
        longest_poll: most seconds between two looks while waiting.
        max_workers: most heartbeats under way at a time.
        best_effort_release: what `hold` does if the release fails but the work did not. True: it is
            logged and the work's result stands. False: it raises.
        observe: is told of hand-offs, evictions, lost pushes; None logs them.
        clock: the present, for tests.

    May be used by several threads. After a fork the child's copy makes connections and threads of
    its own, and knows no locks; if it was given a client, it acquires none either (RuntimeError).

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    def __init__(
        self,
        table_name: str,
        *,
        session: boto3.Session | None = None,
        client: DynamoDBClient | None = None,
        stepfunctions: SFNClient | None = None,
        owner_name: str | None = None,
        lease: float = DEFAULT_LEASE_SECONDS,
        wait: float | None = None,
        heartbeat_every: float | None = None,
        safe_period: float | None = None,
        takeover: Takeover = "observed",
        longest_poll: float = 5.0,
        max_workers: int = 32,
        best_effort_release: bool = True,
        observe: Observe | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._timing = arguments.Timing(heartbeat_every=heartbeat_every, safe_period=safe_period)
        arguments.require_settings(
            owner_name=owner_name or "",
            lease=lease,
            wait=wait,
            timing=self._timing,
            takeover=takeover,
            longest_poll=longest_poll,
            max_workers=max_workers,
        )
        self._connection = Connection(
            session=session,
            dynamodb=client,
            stepfunctions=stepfunctions,
            most_at_once=max_workers,
        )
        self._table_name = table_name
        self._owner_name = owner_name
        self._lease = lease
        self._wait = wait
        self._takeover = takeover
        self._longest_poll = longest_poll
        self._max_workers = max_workers
        self._best_effort_release = best_effort_release
        self._observe = observe or log_event
        self._clock = clock or BootClock()
        self._closed = False
        self._begin()
        reset_in_children(self)

    def _begin(self) -> None:
        watches = self._takeover == "observed"
        self._heartbeats = Heartbeats(self._clock, most_at_once=self._max_workers)
        self._unreleased = UnreleasedHandles()
        self._callbacks = Callbacks()
        self._store_factory = StoreFactory(
            connection=self._connection,
            table_name=self._table_name,
            clock=self._clock,
            lease_expiry=WatchedExpiry(self._clock) if watches else StoredExpiry(self._clock),
            observe=self._observe,
        )

    def reset_after_fork(self) -> None:
        """Called in a forked child; nobody else needs it."""
        self._connection.forget()
        self._begin()

    def acquire(
        self,
        name: str,
        *,
        lease: float | None = None,
        wait: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
    ) -> Lock:
        """Takes the lock, or waits in its queue until it is handed over. Renewed until released.

        One request if a permit is free. Else the client joins the queue, and then only reads: one
        strongly consistent read a poll.

        Args:
            name: 1 to 512 bytes of UTF-8 without control characters.
            lease: seconds, 1 to 43,200 (12 h).
            wait: longest seconds to wait; 0 does not wait, at most 7 days. A holder that crashed is
                replaced only by a client that waits for longer than its lease, see `takeover`.
            limit: number of permits of this lock, 1 to 100.
            data: a JSON object of at most 2 KiB that others can read while the lock is held.
            owner_name: label for people, of this one lock.
            on_lost: called once if the lock is lost.
            on_danger: called if the lease is near its end and could not be renewed.

        Raises:
            LockWaitTimeout: not handed over in time. Nothing is held, no place in the queue kept.
            LockStoreUnavailable: outcome unknown until the wait was over. What may have been
                granted ends with its lease.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        seconds = self.longest_wait(lease) if wait is None else wait
        arguments.require_wait(seconds)
        lock, waiting = self._attempt(
            name,
            wait=seconds,
            lease=lease,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )
        if lock is None:
            raise waiting.timed_out()
        return lock

    def try_acquire(
        self,
        name: str,
        *,
        lease: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
    ) -> Lock | None:
        """Takes the lock if that is possible at once; None if others hold it. Does not queue.

        One look is no watch: the place of a holder that crashed is taken by a client that has tried
        before, a lease ago, or by one with `takeover="stored_expiry"`. The log tells of such a
        holder.

        Raises:
            LockStoreUnavailable: outcome unknown; never reported as a grant, nor as None.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        lock, waiting = self._attempt(
            name,
            wait=0,
            lease=lease,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )
        if lock is None:
            waiting.log_takeover_hint()
        return lock

    def longest_wait(self, lease: float | None = None) -> float:
        """Seconds that `acquire` waits for a lock with such a lease, if it is not told how long."""
        return arguments.default_wait(self._wait, self._lease if lease is None else lease)

    def hold(
        self,
        name: str,
        *,
        lease: float | None = None,
        wait: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
    ) -> AbstractContextManager[Lock]:
        """`with locks.hold("orders/7") as lock:` acquires, runs the body, releases.

        What the body raises leaves as it is; if the release fails too, or the lock was lost, a note
        on it says so. If the body succeeds but the lock was lost meanwhile, `LockLost` is raised:
        the body was not alone. If only the release fails, see `best_effort_release`.

        Arguments and errors as of `acquire`.
        """
        return self._hold(
            name,
            lease=lease,
            wait=wait,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )

    def close(self, *, release: bool = False) -> None:
        """Ends heartbeats and threads, and closes the connections that this client made.

        May be called by a signal handler, but rather let that raise SystemExit, and `with` close:
        of a lock that is in the middle of a request a handler can only log that its lease ends it.

        Args:
            release: whether to give back all locks that are held, as well as that is possible.
                Else they are held until their leases are over.
        """
        self._closed = True
        held = list({*self._heartbeats.locks(), *self._unreleased.locks()})
        is_interrupted = any(one.is_interrupted for one in held)
        if release and held:
            self._release_all(held)
        self._heartbeats.close(wait=not is_interrupted)
        self._callbacks.close()
        self._connection.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes, and gives back all locks that are held."""
        self.close(release=True)

    @contextmanager
    def _hold(self, name: str, **wanted: Any) -> Iterator[Lock]:  # noqa: ANN401 - as of `acquire`
        with self.acquire(name, **wanted) as lock:
            yield lock

    def _attempt(
        self,
        name: str,
        *,
        wait: float,
        lease: float | None,
        limit: int,
        data: Mapping[str, Any] | None,
        owner_name: str | None,
        on_lost: Callback | None,
        on_danger: Callback | None,
    ) -> tuple[Lock | None, Acquisition]:
        self._require_open()
        seconds = self._lease if lease is None else lease
        request = arguments.acquire_request(
            name=name,
            lease=seconds,
            limit=limit,
            data=data,
            owner_name=owner_name or self._owner_name or arguments.default_owner_name(),
            waits=wait > 0,
        )
        self._timing.require_room(seconds)
        arguments.require_callable("on_lost", on_lost)
        arguments.require_callable("on_danger", on_danger)
        waiting = Acquisition(
            self._store_factory,
            request,
            wait=wait,
            longest_poll=self._longest_poll,
            require_open=self._require_open,
        )
        granted = waiting.run()
        if granted is None:
            return None, waiting
        try:
            lock = Lock(
                self._store_factory,
                request,
                granted,
                data=data,
                timing=self._timing,
                heartbeats=self._heartbeats,
                unreleased=self._unreleased,
                reports=self._callbacks,
                on_lost=on_lost,
                on_danger=on_danger,
                best_effort_release=self._best_effort_release,
            )
        except BaseException:  # Interrupted, or no thread to be had for its heartbeats.
            with suppress(Exception):
                waiting.leave()
            raise
        if self._closed:  # In this moment: nobody would renew it.
            lock.release()
            self._require_open()
        return lock, waiting

    def _release_all(self, held: list[LeaseHandle]) -> None:
        crew = WorkerPool(min(self._max_workers, len(held)), name="leasehold-close")
        for one in held:
            if one.is_interrupted:  # A thread of the crew would wait for us.
                self._release_at_close(one)
                continue
            try:
                crew.begin(partial(self._release_at_close, one))
            except RuntimeError:  # No thread to be had.
                self._release_at_close(one)
        crew.close()

    def _release_at_close(self, held: LeaseHandle) -> None:
        self._heartbeats.drop(held)
        try:
            held.release()
        except Exception:
            _logger.exception("release at close failed; the lease ends it")

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this LockClient is closed")
