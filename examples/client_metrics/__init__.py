"""Metrics of a Python client: pass one of these functions as `LockClient(…, on_event=…)`."""
