"""Takeover: which of the holders whose lease is over may be evicted.

A lease that belongs to a workflow ends with the workflow, not with the time: a task that takes
longer than expected keeps its lock. So Step Functions is asked before such a holder is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairlock.dynamodb.lock_table import Written
from fairlock.protocol.model import Holder, Liveness
from fairlock.protocol.permits import extend_lease
from fairlock.store.context import LockContext
from fairlock.store.events import Extended, LivenessUnknown

_MOST_CHECKS: Final = 5
"""DescribeExecution calls of one acquire; the rest is left to the next caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredHolders:
    """What became of the holders whose lease is over.

    Attributes:
        evictable: the holders that may lose their place.
        unknown: how many count as alive only because Step Functions did not say.
    """

    evictable: tuple[Holder, ...] = ()
    unknown: int = 0


NONE_EXPIRED: Final = ExpiredHolders()


def check_expired_holders(
    context: LockContext, lock_name: str, candidates: Sequence[Holder], *, needed: int
) -> ExpiredHolders:
    """Finds holders that may be evicted; extends the leases of workflows that still run."""
    began = context.retry_budget.clock.monotonic()
    evictable: list[Holder] = []
    unknown = checks = 0
    for holder in _in_order_of_cost(candidates, context.random()):
        if len(evictable) == needed or checks == _MOST_CHECKS:
            break
        if holder.execution_arn is None or holder.is_undelivered:
            evictable.append(holder)
            continue
        if context.retry_budget.is_over(since=began):
            break  # Step Functions is slow today, and the caller has more to do.
        checks += 1
        match context.workflows.describe(holder.execution_arn).liveness:
            case Liveness.OVER:
                evictable.append(holder)
            case Liveness.RUNNING if _extend(context, lock_name, holder):
                context.observe(Extended(lock_name=lock_name))
            case Liveness.UNKNOWN:
                unknown += 1
                context.observe(
                    LivenessUnknown(lock_name=lock_name, execution_arn=holder.execution_arn)
                )
    return ExpiredHolders(evictable=tuple(evictable), unknown=unknown)


def _in_order_of_cost(candidates: Sequence[Holder], fraction: float) -> list[Holder]:
    """Holders without a workflow to ask about first; then the others, from a random one onwards.

    In a fixed order a few executions that Step Functions never answers for would take all checks.
    """
    workflows = [h for h in candidates if h.execution_arn is not None and not h.is_undelivered]
    plain = [holder for holder in candidates if holder not in workflows]
    start = int(fraction * len(workflows))
    return [*plain, *workflows[start:], *workflows[:start]]


def _extend(context: LockContext, lock_name: str, holder: Holder) -> bool:
    update = extend_lease(lock_name, holder, now_ms=context.aws_clock.now_ms())
    return isinstance(context.table.update(update), Written)
