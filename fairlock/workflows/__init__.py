"""Workflow engines: wake an execution that waits, and ask whether an execution still runs."""
