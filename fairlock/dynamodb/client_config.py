"""Settings of the AWS clients. Apart from `lock_table`, because they load the network library."""

from __future__ import annotations

import platform
from typing import Final

from botocore.config import Config

USER_AGENT: Final = f"fairlock Python/{platform.python_version()}"
"""Who sends a request, for CloudTrail; boto3 appends botocore's version. Without a text of ours
botocore puts one together from its parts for each request: an eighth of a lock's CPU time."""

CLIENT_CONFIG: Final = Config(
    connect_timeout=1,
    read_timeout=1.5,
    retries={"mode": "standard", "total_max_attempts": 3},
    user_agent=USER_AGENT,
)
"""Three quick tries fit well into the handlers' time. DynamoDB answers in milliseconds; a longer
read timeout would only turn a lost reply into a lost invocation."""

OWN_REQUESTS_CONFIG: Final = CLIENT_CONFIG.merge(Config(parameter_validation=False))
"""For a client that nobody else uses: our own requests are well-formed, and boto3 takes a twelfth
of their time to check that."""
