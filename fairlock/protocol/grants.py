"""The conditional writes of an owner that comes in, and of one that stays; a function for each.

Each is one request: docs/protocol.md, "Without waiters", has a table of them. Each grant lists its
whole condition, and `_grant` is what all of them write. When a condition fails DynamoDB returns the
item as it was: `outcomes.py` finds the reason in it.

Any of them may arrive late, after its caller has given it up. So a condition names what the write
was made for: a grant by its fencing token, a moment by the last departure (`admission.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairlock.clock import stored_end_ms
from fairlock.protocol import schema
from fairlock.protocol.admission import (
    NO_CEILING,
    RETAIN_ITEM,
    Unlearned,
    eviction,
    mark_newest,
    may_enter,
    may_enter_as_seen,
    needs_longer_retention,
    no_one_left,
    not_outdated,
    retained,
)
from fairlock.protocol.items import SAME_EXECUTIONS, come_in, shared_executions
from fairlock.protocol.model import (
    DEFAULT_LEASE_MS,
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
)
from fairlock.protocol.schema import (
    I_DO_NOT_HOLD,
    MY_GRANT,
    NEXT_TOKEN,
    NOT_CONTENDED,
    NOT_RELEASED_BY_ME,
    Part,
    Values,
    conditional_update,
    number,
    token_seed,
)
from fairlock.protocol.table_requests import Update

_AS_SEEN: Final = (MY_GRANT, "#mine.#h_revision = :seen_revision")
ASK_MS: Final = 10_000
"""For how long a contender extends a lease that is over while it asks about its workflow."""


def acquire_permit(request: AcquireRequest, *, sent_at_ms: int, now_ms: int) -> Update:
    """Take a free permit. Grants nothing to a holder, nor to an owner who released last.

    This first write supposes what is usual: that all name the same limit, that their executions are
    of one account and region, that TTL will not delete the item soon, and that no other owner left
    after it was sent.
    """
    return _grant(
        request,
        I_DO_NOT_HOLD,
        NOT_CONTENDED,
        NOT_RELEASED_BY_ME,
        may_enter(request.limit),
        not_outdated(sent_at_ms),
        now_ms=now_ms,
    )


def acquire_permit_as_seen(request: AcquireRequest, seen: LockState, *, now_ms: int) -> Update:
    """Take a permit that was seen to be free, after the first write was refused."""
    return _grant(
        request,
        I_DO_NOT_HOLD,
        NOT_CONTENDED,
        NOT_RELEASED_BY_ME,
        may_enter_as_seen(request.limit, seen),
        no_one_left(seen),
        seen=seen,
        now_ms=now_ms,
        retain_long=needs_longer_retention(seen, now_ms=now_ms),
    )


def reacquire_permit(
    request: AcquireRequest, *, now_ms: int, seen: LockState | None = None
) -> Update:
    """Take a free permit for an acquisition that the reaper released on its behalf.

    It may have released last, by the reaper. The claim that this is written with tells a late copy.
    """
    return _grant(
        request,
        I_DO_NOT_HOLD,
        NOT_CONTENDED,
        may_enter(request.limit) if seen is None else may_enter_as_seen(request.limit, seen),
        seen=seen,
        now_ms=now_ms,
        retain_long=True,
    )


def take_over_permit(
    request: AcquireRequest, evictable: Sequence[Holder], *, now_ms: int, seen: LockState
) -> Update:
    """Take the place of holders whose lease is over, on a lock seen in this state.

    The mark of the last owner who released stays as it is: an evicted holder has not released, and
    must be told so.
    """
    return _grant(
        request,
        I_DO_NOT_HOLD,
        NOT_CONTENDED,
        NOT_RELEASED_BY_ME,
        may_enter_as_seen(request.limit, seen, evictable),
        no_one_left(seen),
        eviction(evictable, left_at_ms=seen.left_at_ms(now_ms)),
        permits=1 - len(evictable),
        seen=seen,
        now_ms=now_ms,
        retain_long=needs_longer_retention(seen, now_ms=now_ms),
    )


def renew(request: HeartbeatRequest, *, now_ms: int) -> Update:
    """Let the lease end one lease from now, even if it has run out and no one took the place.

    Refused if the lease ends later already: a late copy must not move the end back, on which the
    holder relies. But never for anything else that the previous heartbeat changed: a heartbeat
    whose reply was lost must not look like a stolen lock.

    A caller that does not name its lease has the usual one most probably; with another, this write
    is refused, and `renew_as_seen` uses the stored one.
    """
    lease_ms = DEFAULT_LEASE_MS if request.lease_ms is None else request.lease_ms
    usual = () if request.lease_ms is not None else ("#mine.#h_lease_ms = :lease_ms",)
    return _renewal(
        request,
        lease_ms=lease_ms,
        expires_at_ms=stored_end_ms(now_ms, lease_ms),
        conditions=("#mine.#h_expires_at_ms <= :expires_at_ms", *usual),
        now_ms=now_ms,
    )


def beside_newer(request: HeartbeatRequest, seen: LockState) -> HeartbeatRequest:
    """The same heartbeat, of an owner that holds beside a newer version if there is one.

    With its own version it would be refused. Without any, the mark of the newer grant might be put
    back to what it was before both, and a version below this owner's be granted.
    """
    if not seen.supersedes(request.only_newest):
        return request
    return replace(request, only_newest=seen.newest)


def renew_as_seen(
    request: HeartbeatRequest, holder: Holder, *, now_ms: int, retain_long: bool
) -> Update:
    """Renew a grant that was seen, after `renew` was refused; only a caller that is alive does so.

    The end moves back only if the request names another lease than the stored one.
    """
    lease_ms = holder.lease_ms if request.lease_ms is None else request.lease_ms
    asked_ms = stored_end_ms(now_ms, lease_ms)
    is_meant = lease_ms != holder.lease_ms
    return _renewal(
        request,
        lease_ms=lease_ms,
        expires_at_ms=asked_ms if is_meant else max(asked_ms, holder.expires_at_ms),
        conditions=_AS_SEEN,
        seen=holder,
        retain_long=retain_long,
        now_ms=now_ms,
    )


def correct_grant(lock_name: str, holder: Holder, *, raises_token: bool, now_ms: int) -> Update:
    """Write the end of a grant once more, which a wrong clock has written just now.

    If the grant was the first of its item, the wrong clock has made its fencing token too, which is
    raised if it is too low: no one has been notified of it.
    """
    token = token_seed(now_ms) + 1
    conditions = ["#mine.#h_revision = :revision", "#my_token = :seen_grant"]
    sets = [
        "#mine.#h_expires_at_ms = :expires_at_ms, #mine.#h_acquired_at_ms = :now",
        f"#mine.#h_revision = #mine.#h_revision + :one, {RETAIN_ITEM}",
    ]
    if raises_token and holder.fencing_token < token:
        sets.append("#my_token = :token, #fencing_token = :token")
        conditions.append("#fencing_token = :seen_grant")
    values: Values = {
        ":expires_at_ms": number(stored_end_ms(now_ms, holder.lease_ms)),
        ":revision": number(holder.revision),
        ":seen_grant": number(holder.fencing_token),
        ":token": number(token),
    }
    return conditional_update(
        schema.lock_key(lock_name),
        *conditions,
        Part(values=values, sets=", ".join(sets)),
        owner_id=holder.owner_id,
        now_ms=now_ms,
    )


def extend_lease(lock_name: str, holder: Holder, *, lease_ms: int, now_ms: int) -> Update:
    """Extend the lease of another owner: its workflow still runs, or is about to be asked about.

    Conditioned on the grant and the revision that were seen: of many contenders only one extends,
    a heartbeat of the holder's own wins, and a later grant of the same owner is left alone.
    """
    return conditional_update(
        schema.lock_key(lock_name),
        *_AS_SEEN,
        Part(
            values={":expires_at_ms": number(stored_end_ms(now_ms, lease_ms)), **_seen(holder)},
            sets=f"#mine.#h_expires_at_ms = :expires_at_ms, {RETAIN_ITEM}, "
            "#mine.#h_revision = #mine.#h_revision + :one",
        ),
        owner_id=holder.owner_id,
        now_ms=now_ms,
    )


UNDELIVERED_MS: Final = 60_000
"""How long a grant lasts that no caller was there to learn of: longer than the pause between two
questions of a waiter, a cold start included. Its own lease may be 12 h."""


def mark_undelivered(grant: Grant, *, now_ms: int, unlearned: Unlearned | None = None) -> Update:
    """Mark a grant that no caller was there to learn of, and let it end soon.

    The owner may still ask again, and has its place back. What its grant has set as the newest is
    put back. Refused if another owner has set it since, or if this one has renewed.
    """
    end_ms = min(grant.expires_at_ms, stored_end_ms(now_ms, UNDELIVERED_MS))
    return conditional_update(
        schema.lock_key(grant.lock_name),
        Part(
            "#my_token = :seen_grant AND #mine.#h_revision = :one",
            {":seen_grant": number(grant.fencing_token), ":expires_at_ms": number(end_ms)},
            sets="#mine.#h_undelivered = :yes, #mine.#h_expires_at_ms = :expires_at_ms",
        ),
        Part() if unlearned is None else unlearned.put_back(),
        owner_id=grant.owner_id,
    )


def _grant(
    request: AcquireRequest,
    *rule: Part | str,
    permits: int = 1,
    seen: LockState | None = None,
    now_ms: int,
    retain_long: bool = False,
) -> Update:
    """Makes the owner a holder, perhaps in the place of others that leave by the same write.

    Beside its `rule` a grant asks only for what the write itself relies on: the spelling of ARNs in
    the item, and that the item lasts.
    """
    spared = seen is not None and seen.ceiling is not None
    executions = shared_executions(request, seen)
    holder = request.as_holder(fencing_token=0, now_ms=now_ms)  # The write computes its token.
    more = ":one" if permits == 1 else ":difference"
    return conditional_update(
        schema.lock_key(request.lock_name),
        *rule,
        come_in(holder, NEXT_TOKEN, executions),
        mark_newest(request.only_newest, NEXT_TOKEN),
        SAME_EXECUTIONS if executions else "",
        retained(long=(retain_long or request.execution_arn is not None) and not spared),
        Part(values={":difference": number(permits)}, adds=f"#held {more}"),
        owner_id=request.owner_id,
        returns="UPDATED_OLD",
        now_ms=now_ms,
    )


def _renewal(
    request: HeartbeatRequest,
    *,
    lease_ms: int,
    expires_at_ms: int,
    conditions: Sequence[str],
    seen: Holder | None = None,
    retain_long: bool = False,
    now_ms: int,
) -> Update:
    values: Values = {":expires_at_ms": number(expires_at_ms), ":lease_ms": number(lease_ms)}
    if seen is not None:
        values |= _seen(seen)
    data = "" if request.data is None else "#mine.#h_data = :data"
    return conditional_update(
        schema.lock_key(request.lock_name),
        *conditions,
        Part(
            values=values,
            sets="#mine.#h_revision = #mine.#h_revision + :one, "
            "#mine.#h_expires_at_ms = :expires_at_ms, #mine.#h_lease_ms = :lease_ms",
        ),
        # 400 days must not be written over the retention of a ceiling that was set meanwhile.
        *([NO_CEILING] if retain_long else []),
        retained(long=retain_long),
        mark_newest(request.only_newest, "#my_token"),
        Part(values={":data": {"S": request.data or ""}}, sets=data),
        owner_id=request.owner_id,
        now_ms=now_ms,
    )


def _seen(holder: Holder) -> Values:
    return {":seen_grant": number(holder.fencing_token), ":seen_revision": number(holder.revision)}
