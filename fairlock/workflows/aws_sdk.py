"""The AWS SDK that a function of the service runs with: Lambda's runtime brings it."""

from __future__ import annotations

from typing import Final

import botocore

from fairlock.errors import LockStoreMisconfigured
from fairlock.wire.executions import is_durable

_KNOWS_DURABLE_FUNCTIONS: Final = (1, 42)
"""botocore 1.41.6 has none of the calls, 1.42.1 has all; there is no 1.42.0."""


def require_durable_calls(execution_arn: str | None) -> None:
    """Refuses a durable execution where the AWS SDK cannot ask for it.

    Nobody could wake it, and nobody could tell that it has died: its lock would stay taken.

    Args:
        execution_arn: the execution that the request names; None if it names none.

    Raises:
        LockStoreMisconfigured: names the version that is there, and the one that is needed.
    """
    if execution_arn is None or not is_durable(execution_arn):
        return
    if tuple(int(part) for part in botocore.__version__.split(".")[:2]) < _KNOWS_DURABLE_FUNCTIONS:
        raise LockStoreMisconfigured(
            f"the service cannot lock for durable executions: its AWS SDK, botocore "
            f"{botocore.__version__}, does not know them; it needs 1.42.1, so let its functions "
            f"use a newer version of Lambda's runtime"
        )
