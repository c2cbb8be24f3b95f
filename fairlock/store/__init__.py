"""The operations of a lock, over one table. Uncontended, each of them is one request.

Guaranteed: no more owners hold a lock name than the `limit` of any of them. Without a release by
force, an owner loses its place only after its own end of its lease, whatever the clocks of machines
show, and not while the workflow it belongs to runs, unless that was never told of its grant. The
fencing tokens of a lock name always grow.

Not guaranteed: that a stalled holder notices the end of its lease. Pass the fencing token on to the
resource that the lock protects, and refuse older tokens there.

All operations raise `LockStoreUnavailable` when the outcome is unknown; each may be repeated with
the same owner_id, and then gives the answer that was lost.

Nothing is imported here, so a function loads only the operation that it makes.
"""
