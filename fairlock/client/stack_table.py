"""The lock table by what a program knows of it: a name, its environment, or the name of a stack."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.dynamodb.failures import error_code, may_pass, misconfigured_call
from fairlock.errors import InvalidRequest, LockStoreMisconfigured, LockStoreUnavailable
from fairlock.metrics import TABLE_NAME_PARAMETER, TABLE_NAME_VARIABLE, stack_parameter
from fairlock.wire import rules

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_SHARED: Final = (
    "no stack of this name shares a lock service in this account and region; check all three, and "
    "that the stack calls `LockService.share`"
)
_NO_PERMISSION: Final = (
    "the caller may not read it: allow ssm:GetParameter on it, or set "
    f"{TABLE_NAME_VARIABLE} to the table's name"
)
_ADVICE: Final = {
    "ParameterNotFound": _NOT_SHARED,
    "AccessDeniedException": _NO_PERMISSION,
    "AccessDenied": _NO_PERMISSION,
}


def table_or_default(table_name: str | None) -> str:
    """The lock table that was named, or else that of the environment.

    Raises:
        InvalidRequest: neither names one.
    """
    table = os.environ.get(TABLE_NAME_VARIABLE) if table_name is None else table_name
    if table_name is None and not table:
        rule = (
            f"give the name of the lock table, set {TABLE_NAME_VARIABLE} to it, or make the client "
            "by `from_stack`"
        )
        raise InvalidRequest(field="table_name", rule=rule, missing=True)
    return table or ""


def table_of_stack(stack_name: str, make_client: Callable[[], Any]) -> str:
    """Reads the name of the table that a stack shares: one request.

    Args:
        stack_name: the stack with the lock service.
        make_client: makes a client for Systems Manager.

    Raises:
        InvalidRequest: no stack can have this name.
        LockStoreMisconfigured: there is no such stack or parameter in this region, no permission to
            read it, no region or no credentials.
        LockStoreUnavailable: the Parameter Store did not answer; repeat the call.
    """
    rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
    path = stack_parameter(stack_name, TABLE_NAME_PARAMETER)
    region = None
    try:
        client = make_client()
        region = client.meta.region_name
        found = client.get_parameter(Name=path)
    except (BotoCoreError, ClientError, ValueError) as error:
        if may_pass(error):
            message = (
                f"parameter {path!r}: the Parameter Store did not answer: {error}; repeat the call"
            )
            raise LockStoreUnavailable(message) from error
        raise _misconfigured(error, path, region) from error
    return str(found["Parameter"]["Value"])


def _misconfigured(error: Exception, path: str, region: str | None) -> LockStoreMisconfigured:
    place = f"parameter {path!r} in {region or 'no known region'}"
    advice = _ADVICE.get(error_code(error))
    return misconfigured_call(error, place=place, region=region, advice=advice)
