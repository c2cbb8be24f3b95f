"""What all locks of one client use, and how each begins: acquired, or adopted.

A lock that is adopted was acquired by a function, a workflow or another process.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fairlock.client import arguments
from fairlock.client.acquisition import Acquisition
from fairlock.client.arguments import LockOptions
from fairlock.client.connection import TableAccess
from fairlock.client.entered_locks import EnteredLocks
from fairlock.client.heartbeats import BaseHeartbeats, Unreleased
from fairlock.clock import in_seconds, lease_for
from fairlock.errors import LockLost
from fairlock.protocol.description import read_data
from fairlock.protocol.items import read_state
from fairlock.protocol.model import AcquireRequest, Grant, HeartbeatRequest
from fairlock.protocol.schema import lock_key
from fairlock.store.keep_alive import renew_lease
from fairlock.wire import rules
from fairlock.wire.requests import require_room_for_all

_Callback = TypeVar("_Callback")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices(TableAccess):
    """What all locks of one client use, of either kind."""

    heartbeats: BaseHeartbeats
    entered: EnteredLocks
    unreleased: Unreleased = field(default_factory=Unreleased)
    of_asyncio: bool = False

    def acquisition(
        self, options: LockOptions[Any], require_open: Callable[[], None]
    ) -> Acquisition:
        """A new acquisition, with an owner_id of its own."""
        settings = self.settings
        lease = settings.lease if options.lease is None else in_seconds(options.lease)
        max_wait = in_seconds(options.max_wait)
        max_wait = settings.longest_wait(lease) if max_wait is None else max_wait
        owner_name = settings.owner_name if options.owner_name is None else options.owner_name
        owner_name = arguments.default_owner_name() if owner_name is None else owner_name
        arguments.require_max_wait(max_wait)
        lock_name = rules.plain_text("name", rules.LOCK_NAME, options.name)
        arguments.warn_of_missing_part(lock_name)
        rules.require("lease", rules.LEASE_SECONDS, lease)
        arguments.require_bool("shared", options.shared)
        rules.require_one_way(shared=options.shared, only_newest=options.only_newest)
        owner_name = rules.plain_text("owner_name", rules.OWNER_NAME, owner_name)
        limit = rules.limit_of(options.limit, shared=options.shared)
        require_room_for_all(limit=limit, owner_name=owner_name, execution_arn=None)
        request = AcquireRequest(
            lock_name=lock_name,
            owner_id=str(uuid.uuid4()),
            owner_name=owner_name,
            lease_ms=round(lease * 1000),
            limit=limit,
            data=arguments.as_text(options.data),
            waits=max_wait > 0,
            shared=options.shared,
            only_newest=arguments.checked_version(options.only_newest),
        )
        settings.timing.require_room(lease)
        if options.max_hold is not None:
            max_hold = in_seconds(options.max_hold)
            settings.timing.require_hold(max_hold, lease)
            if settings.timing.period(lease) == math.inf:
                # Nothing shortens the lease later, and it frees the lock of a frozen process.
                # A second more, so that the loss is told as the end of max_hold.
                lease_ms = min(request.lease_ms, round(lease_for(max_hold + 1) * 1000))
                request = replace(request, lease_ms=lease_ms)
        options.require_callbacks(of_asyncio=self.of_asyncio)
        if request.waits:
            self.entered.require_that_others_can_release(request)
        return Acquisition(self, request, max_wait=float(max_wait), require_open=require_open)

    def adopt(
        self, owner_id: str, options: LockOptions[_Callback]
    ) -> tuple[AcquireRequest, LockOptions[_Callback], Grant]:
        """Reads a lock, and renews its lease; returns what a lock object is made of."""
        settings = self.settings
        name = rules.plain_text("name", rules.LOCK_NAME, options.name)
        owner_id = arguments.checked_owner_id(owner_id)
        lease = in_seconds(options.lease)
        if lease is not None:
            rules.require("lease", rules.LEASE_SECONDS, lease)
            settings.timing.require_room(lease)
        options.require_callbacks(of_asyncio=self.of_asyncio)
        not_held = LockLost(
            f"lock {name!r}: it is not held by this owner_id: it was released, or its lease has "
            "expired; acquire the lock"
        )
        context = self.context()
        holder = read_state(context.table.read(lock_key(name))).holder(owner_id)
        if holder is None:
            raise not_held
        if lease is None:
            settings.timing.require_room(holder.lease_ms / 1000)
        lease_ms = None if lease is None else round(lease * 1000)
        heartbeat = HeartbeatRequest(lock_name=name, owner_id=owner_id, lease_ms=lease_ms)
        grant = renew_lease(context, heartbeat)
        if grant is None:
            raise not_held
        data = read_data(holder.data)
        known = replace(
            options,
            name=name,
            limit=holder.limit,
            data=data if isinstance(data, Mapping) else None,  # Text: see `describe`.
            owner_name=holder.owner_name,
            shared=holder.shared,
        )
        request = AcquireRequest(
            lock_name=name,
            owner_id=owner_id,
            owner_name=holder.owner_name,
            lease_ms=grant.lease_ms,
            limit=holder.limit,
            data=holder.data,
            execution_arn=holder.execution_arn,
            shared=holder.shared,
        )
        return request, known, grant
