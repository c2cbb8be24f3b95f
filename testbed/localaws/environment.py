"""Environments in which nothing can reach a real AWS account.

Guarantee: the variables made here name no profile, file, role, proxy or endpoint of the machine's
user. A program that runs with them reaches the emulator and nothing else.
"""

import os
import secrets
from collections.abc import Mapping

REGION = "us-east-1"
ACCOUNT = "000000000000"

_FOREIGN_PREFIXES = (
    "AWS_",
    "CDK_",
    "MINISTACK_",
    "LOCALSTACK_",
    "LAMBDA_",
    "COV_CORE_",
    "COVERAGE_",
)
_FOREIGN_NAMES = frozenset(
    {
        "AUTH",
        "BIND_HOST",
        "EDGE_PORT",
        "GATEWAY_PORT",
        "LOG_LEVEL",
        "PERSIST_STATE",
        "S3_PERSIST",
        "SERVICES",
        "USE_SSL",
    }
)


def without_foreign_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The machine's environment without AWS credentials, CDK settings, emulator settings, proxies.

    Proxies go because every address in use is a loopback address; coverage hooks go because a
    handler that is measured by the test run's coverage is slow and writes into the checkout.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN_PREFIXES)
        and name not in _FOREIGN_NAMES
        and not name.lower().endswith("_proxy")
    }


def new_access_key() -> str:
    """The secret of one instance: what it serves must name it, and no web page knows it."""
    return f"LOCALAWS{secrets.token_hex(12).upper()}"


def client_settings(endpoint_url: str, access_key: str) -> dict[str, str]:
    """What an SDK, the AWS CLI or the CDK CLI needs to reach the emulator, and only it."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        # StartSyncExecution would else be sent to the host "sync-127.0.0.1".
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
    }
