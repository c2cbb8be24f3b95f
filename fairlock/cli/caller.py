"""Who runs a command: for AWS, and on this machine."""

from __future__ import annotations

import getpass
import socket
from typing import Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.cli.target import Target
from fairlock.errors import FairlockError
from fairlock.wire import rules

_QUICKLY: Final = Config(
    connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1}
)


def principal(target: Target) -> str | None:
    """The ARN of the principal whom AWS knows, account included; None if nobody answers.

    One request to STS, which needs no permission.
    """
    try:
        return str(target.client("sts", config=_QUICKLY).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError, FairlockError, KeyError):
        return None


def caller(target: Target) -> str:
    """The principal and the user of this machine; without an answer of AWS the user alone."""
    user, arn = _user_of_this_machine(), principal(target)
    if arn is None:
        return user
    return f"{arn} ({user})".encode()[: rules.LONGEST_REQUESTED_BY_BYTES].decode(errors="ignore")


def _user_of_this_machine() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # No such user, as in some containers.
        user = "unknown user"
    return f"{user}@{socket.gethostname()}"
