"""What people do with the locks of a table, their own or not: see, free, limit and pause them."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from fairlock.client.arguments import (
    ClientSettings,
    checked_owner_id,
    default_owner_name,
    refuse,
    require_max_wait,
)
from fairlock.client.connection import RELEASE_SECONDS
from fairlock.client.reporting import logger
from fairlock.client.services import ClientServices
from fairlock.clock import Seconds, in_seconds
from fairlock.errors import (
    DescribedHolder,
    FairlockError,
    HolderChanged,
    LockItemMalformed,
    LockStoreUnavailable,
    SlotTooLate,
)
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.description import LockDescription
from fairlock.protocol.model import ForceReleaseRequest, ReleaseRequest
from fairlock.protocol.outcomes import Released
from fairlock.protocol.pace import MICROSECONDS, PaceRequest, interval_us
from fairlock.store.administration import (
    change_ceiling,
    describe,
    empty_queue,
    force_release,
    list_locks,
)
from fairlock.store.release import release
from fairlock.store.turns import Turn
from fairlock.wire import rules


class LockAdministration(ABC):
    """The part of `LockClient` that needs no lock of its own."""

    _settings: ClientSettings

    def describe(self, name: str) -> LockDescription | None:
        """Tells who holds a lock and who waits for it. Two requests, and one a MB of waiters.

        Not a snapshot, but no one who holds or waits all the time is left out. What proves
        ownership is not shown. None if the table has no item of this name: the lock was never used,
        or DynamoDB has deleted its item since the last use.

        Raises:
            LockStoreUnavailable: the table did not answer.
            LockItemMalformed: another program has changed an item of the lock.
            InvalidRequest: the name breaks its rule.
        """
        name = rules.plain_text("name", rules.LOCK_NAME, name)
        return describe(self._opened().context(), name)

    def list(self, prefix: str | None = None) -> Iterator[LockDescription]:
        """Iterates over the locks that the table knows, in no order; held, waited for, and free.

        Reads the **whole table**, whatever the prefix: one strongly consistent `Scan` for each MB,
        which costs 256 read units a MB (100,000 locks without a holder's data: about 30 MB, 0.1
        cents). Needs the permission `dynamodb:Scan`, which `grant_client` does not give; see
        `grant_administration`.

        Not a snapshot: each lock is as it was when its page was read. A lock that is made meanwhile
        may be missing. A lock whose items another program has changed is logged and left out. A
        `prefix` shows only names that begin so.

        Raises:
            LockStoreUnavailable: the table did not answer; what came before is right.
            LockStoreMisconfigured: no permission to scan, for instance.
            InvalidRequest: the prefix breaks its rule.
        """
        beginning = "" if prefix is None else rules.plain_text("prefix", rules.PREFIX, prefix)
        return _well_formed_locks(self._opened(), beginning)

    def force_release(
        self,
        name: str,
        *,
        holder: DescribedHolder | None = None,
        fencing_token: int | None = None,
        reason: str,
        requested_by: str | None = None,
    ) -> None:
        """Takes a lock away from a holder, for the oldest waiter if there is one.

        For a holder that will not release: its program hangs but renews, or its lease is long.
        **The holder is not stopped.** It learns of the loss when it asks: its next heartbeat, and
        `check` after that, raise `LockLost`, guarded writes are refused, its release changes
        nothing. A workflow learns of it at its heartbeat with `keep_alive`, else at its release. So
        stop it first, if you can.

        Only the grant that was seen is taken away: the fencing token names it. Two requests if the
        queue is empty; three and a push if not. May be repeated. Logged as a warning, and stored
        with the lock, where `describe` shows the last one.

        Args:
            name: the lock.
            holder: as `describe`, `list` or `LockWaitTimeout` has shown it.
            fencing_token: of the holder's grant, instead of the holder.
            reason: why, 1 to 512 bytes; others see it.
            requested_by: who does it, at most 256 bytes; None takes the client's `owner_name`, or
                host, process and program. It is not verified.

        Raises:
            HolderChanged: that grant is over; nothing was written by this call.
            LockStoreUnavailable: outcome unknown; repeat the call.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        request = ForceReleaseRequest(
            lock_name=rules.plain_text("name", rules.LOCK_NAME, name),
            fencing_token=_token_of_the_grant(holder, fencing_token),
            reason=rules.plain_text("reason", rules.REASON, reason),
            requested_by=self._requested_by(requested_by),
        )
        answer, attempts = self._opened().repeat(lambda context, _: force_release(context, request))
        if answer is None:
            raise _holder_changed(request, attempts)

    def set_limit(
        self, name: str, limit: int, *, reason: str, requested_by: str | None = None
    ) -> None:
        """Lets no more than this number hold a lock, whatever limits its callers name.

        For an incident: the vendor takes three calls at a time instead of ten, and no deployment is
        needed. It applies until `resume`, whatever is deployed. Holders continue; further grants
        wait until fewer hold. Raising the limit hands over to those who wait, by this call.

        Two requests, and one more with a push for each waiter that gets the lock. While a limit
        applies, each acquire of this lock takes a request more. You can repeat the call: the last
        caller wins. Logged as a warning, and stored with the lock, where `describe` shows it.

        Args:
            name: the lock; need not exist yet.
            limit: how many may hold, 1 to 100. It replaces an earlier limit or pause.
            reason: why, 1 to 512 bytes; waiters see it.
            requested_by: as of `force_release`.

        Raises:
            LockStoreUnavailable: outcome unknown; repeat the call.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        require_limit(limit)
        self._change_ceiling(name, limit, reason=reason, requested_by=requested_by)

    def pause(self, name: str, *, reason: str, requested_by: str | None = None) -> None:
        """Keeps all callers from a lock until `resume`; they wait. Holders are not stopped.

        Once this returns, the lock is granted to no caller. Arguments, costs and errors are those
        of `set_limit`. It replaces an earlier limit, and `resume` does not bring that back.
        """
        self._change_ceiling(name, 0, reason=reason, requested_by=requested_by)

    def resume(
        self, name: str, *, reason: str = "resumed", requested_by: str | None = None
    ) -> None:
        """Lifts what `pause` or `set_limit` has set, and hands the lock to the oldest waiters.

        Arguments, costs and errors are those of `set_limit`. A lock without a limit stays as it is.
        """
        self._change_ceiling(name, None, reason=reason, requested_by=requested_by)

    def empty_queue(self, name: str) -> int:
        """Removes all waiters of a lock; the holders stay. Returns how many were removed.

        For a queue of callers that never ask again: each would be handed the lock in turn. **Those
        that do ask again wait again**: a client at the end of the queue, a workflow in its own
        place after its fallback period. May be repeated. Errors as of `release`.
        """
        name = rules.plain_text("name", rules.LOCK_NAME, name)
        removed, _ = self._opened().repeat(lambda context, _attempt: empty_queue(context, name))
        logger.warning("lock %r: %s waiters were removed from its queue", name, removed)
        return removed

    def _change_ceiling(
        self, name: str, limit: int | None, *, reason: str, requested_by: str | None
    ) -> None:
        request = SetCeilingRequest(
            lock_name=rules.plain_text("name", rules.LOCK_NAME, name),
            limit=limit,
            reason=rules.plain_text("reason", rules.REASON, reason),
            requested_by=self._requested_by(requested_by),
        )
        self._opened().repeat(lambda context, _attempt: change_ceiling(context, request))

    def _requested_by(self, requested_by: str | None) -> str:
        if requested_by is None:
            whole = (self._settings.owner_name or default_owner_name()).encode()
            requested_by = whole[: rules.LONGEST_REQUESTED_BY_BYTES].decode(errors="ignore")
        return rules.plain_text("requested_by", rules.REQUESTED_BY, requested_by)

    def release(self, name: str, owner_id: str) -> bool:
        """Releases what a function or another process has acquired, to the oldest waiter if any.

        For a lock that this client has as a `Lock`, call that one's `release`. Do not release what
        a guard holds: its execution goes on, and with `keep_alive` takes it for a loss.

        One request if the queue is empty; three and a push if not. True if this owner has released,
        by this call or before, as long as no one else has released since; False if it does not hold
        the lock. The `owner_id` of the acquisition is the proof of ownership.

        Raises:
            LockStoreUnavailable: outcome unknown; repeat the call.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        request = ReleaseRequest(
            lock_name=rules.plain_text("name", rules.LOCK_NAME, name),
            owner_id=checked_owner_id(owner_id),
            tells_grant=False,
        )
        answer, _ = self._opened().repeat(lambda context, _attempt: release(context, request))
        return isinstance(answer, Released)

    def pace(
        self,
        name: str,
        *,
        rate: tuple[int, Seconds],
        max_wait: Seconds | None = None,
        burst: int = 1,
    ) -> None:
        """Waits for the next slot of a pace, and returns when it begins.

        `locks.pace("vendor", rate=(10, 60))` lets callers begin six seconds apart, wherever they
        run. A pace is no lock: nothing is held, nothing is released, and work may overlap. One
        write reserves the slot; a busy name that this client has not used before takes two, and a
        new client reads once to learn AWS's time.

        Guaranteed: callers of one name begin in the order of their reservations, and at most
        burst + count of them in any period. If slots are closer than 3 s, the callers of 3 s may be
        added, because AWS's time is not known better. A caller that dies wastes its slot.

        Args:
            name: as of a lock. Paces and locks of the same name have nothing to do with each other.
            rate: how many, in how many seconds: `(10, 60)` is ten a minute, `(1, 3600)` one an
                hour. At most 500 a second; 31 days at most.
            max_wait: longest seconds to wait for the slot; 0 does not wait. None takes the client's
                max_wait, or 120.
            burst: how many may begin at once after a pause, at most 1,000.

        Raises:
            SlotTooLate: the next slot is later than max_wait. Nothing was reserved.
            LockStoreUnavailable: unknown whether a slot was reserved. One that was is wasted.
            LockStoreMisconfigured, LockItemMalformed, ClientUnusable: as of `acquire`.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        request = self._pace_request(name, rate=rate, max_wait=max_wait, burst=burst)
        services, longest = self._opened(), request.max_wait_us / MICROSECONDS
        turn = Turn(request, services.known_paces, since=self._settings.clock.monotonic())
        refused, _ = services.repeat(
            lambda context, _attempt: turn.take(context),
            seconds=longest + RELEASE_SECONDS,
            is_vain=lambda: turn.is_unknowable,
        )
        if refused is not None:
            seconds = refused.wait_us / MICROSECONDS
            raise SlotTooLate(
                f"pace {request.name!r}: the next slot begins in {seconds:.1f} s, and the longest "
                f"wait is {longest:g} s; nothing was reserved",
                pace_name=request.name,
                wait_seconds=seconds,
            )

    def _pace_request(
        self, name: str, *, rate: object, max_wait: Seconds | None, burst: int
    ) -> PaceRequest:
        wait = self._settings.longest_wait(None) if max_wait is None else in_seconds(max_wait)
        name = rules.plain_text("name", rules.LOCK_NAME, name)
        if isinstance(rate, tuple):
            rate = tuple(in_seconds(part) for part in rate)
        rules.require("rate", rules.PACE_RATE, rate)
        require_max_wait(wait)
        rules.require("burst", rules.BURST, burst)
        count, period_seconds = cast("tuple[float, float]", rate)
        return PaceRequest(
            name=name,
            reservation_id=str(uuid.uuid4()),
            interval_us=interval_us(int(count), period_seconds),
            burst=int(burst),
            max_wait_us=round(wait * MICROSECONDS),
        )

    @abstractmethod
    def _opened(self) -> ClientServices:
        """The lock table; raises `ClientUnusable` once the client is closed."""


@dataclass(frozen=True, slots=True)
class OpenedTable(LockAdministration):
    """The same over a table that is open, for an `AsyncLockClient` to call on its bridge."""

    _settings: ClientSettings
    _services: ClientServices

    def _opened(self) -> ClientServices:
        return self._services


def require_limit(limit: object) -> None:
    """Refuses what `set_limit` does not take."""
    if limit == 0 and type(limit) is int:
        refuse("limit", "must be at least 1; to let no one hold the lock, use `pause`", limit)
    rules.require("limit", rules.LIMIT, limit)


def _well_formed_locks(services: ClientServices, prefix: str) -> Iterator[LockDescription]:
    for found in list_locks(services.context(), prefix):
        if isinstance(found, LockItemMalformed):
            logger.warning("a lock is left out of the list: %s", found)
        else:
            yield found


def _token_of_the_grant(holder: DescribedHolder | None, fencing_token: int | None) -> int:
    if (holder is None) == (fencing_token is None):
        rule = "exactly one of holder and fencing_token must say whose grant is to end"
        refuse("holder", f"{rule}; `describe` shows both", holder)
    if holder is not None:
        if not isinstance(holder, DescribedHolder):
            rule = "must be a holder as `describe` shows it; a number is a fencing_token"
            refuse("holder", rule, holder)
        return holder.fencing_token
    if type(fencing_token) is not int or not 0 < fencing_token <= rules.HIGHEST_FENCING_TOKEN:
        rule = f"must be a whole number from 1 to {rules.HIGHEST_FENCING_TOKEN}"
        refuse("fencing_token", f"{rule}, as `describe` shows it", fencing_token)
    return fencing_token


def _holder_changed(request: ForceReleaseRequest, attempts: int) -> FairlockError:
    """The error of a release by force that found no holder with that grant."""
    lock, token = f"lock {request.lock_name!r}", request.fencing_token
    if attempts > 1:
        # An attempt without an answer may have done it, and another forced release came after.
        message = f"{lock}: the grant {token} is over, perhaps by this call; describe the lock"
        return LockStoreUnavailable(message)
    message = (
        f"{lock}: no holder has the fencing token {token} any more; this call has written nothing: "
        "describe the lock again"
    )
    return HolderChanged(message, lock_name=request.lock_name, fencing_token=token)
