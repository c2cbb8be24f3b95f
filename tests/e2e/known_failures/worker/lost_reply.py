"""Stands before acquire: the lock is granted, but the first caller of each lock hears nothing."""

from __future__ import annotations

import json
import os
from typing import Any

import boto3

Json = dict[str, Any]

_heard_of: set[str] = set()


def handler(event: Json, _context: object) -> Json:
    """Passes the request on, and loses the first reply."""
    client = boto3.client("lambda")
    response = client.invoke(FunctionName=os.environ["ACQUIRE"], Payload=json.dumps(event))
    answer: Json = json.load(response["Payload"])
    if event["lock_name"] not in _heard_of:
        _heard_of.add(event["lock_name"])
        message = "the reply is lost"
        raise ConnectionError(message)
    return answer
