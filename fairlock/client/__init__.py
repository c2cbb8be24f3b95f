"""`LockClient`, and the parts that it is made of.

    lock_client ─▶ acquisition ─▶ store_factory ─▶ connection
         └───────▶ heartbeats ──▶ heartbeat_schedule     whose heartbeat is due
                       └────────▶ lease_handle           one grant, and how long it lasts

Import from `fairlock`: nothing below this package is public.
"""
