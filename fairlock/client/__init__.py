"""`LockClient`, and the parts that it is made of.

    lock_client ─▶ acquisition ─▶ connection     asks, waits, polls
         └───────▶ heartbeats ──▶ lease_handle   one grant, and how long it lasts

Import from `fairlock`: nothing below this package is public.
"""
