"""The task of the examples: stands for a function that charges a customer."""

from __future__ import annotations

from typing import Any


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answers what it was asked. A real one writes with the fencing token as a condition."""
    return {"charged": event["customer_id"], "fencing_token": event["fencing_token"]}
