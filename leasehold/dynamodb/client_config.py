"""Settings of the AWS clients. Apart from `lock_table`, because they load the network library."""

from __future__ import annotations

from typing import Final

from botocore.config import Config

CLIENT_CONFIG: Final = Config(
    connect_timeout=1,
    read_timeout=1.5,
    retries={"mode": "standard", "total_max_attempts": 3},
)
"""Three quick tries fit well into the handlers' time. DynamoDB answers in milliseconds; a longer
read timeout would only turn a lost reply into a lost invocation."""
