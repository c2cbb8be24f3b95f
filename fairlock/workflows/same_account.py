"""Executions are supported within the service's own account and region only."""

from __future__ import annotations

from fairlock.errors import InvalidRequest


def require_same_account(execution_arn: str | None, *, function_arn: str) -> None:
    """Refuses an execution of another account or region.

    The service gets no events of it and may not describe it: its lease would be extended for ever.

    Args:
        execution_arn: the execution that the request names; None if it names none.
        function_arn: the function that serves the request.

    Raises:
        InvalidRequest: names the account and region that the execution must be of.
    """
    if execution_arn is None or _place(execution_arn) == _place(function_arn):
        return
    partition, region, account = _place(function_arn)
    rule = f"must be an execution of this service's account and region ({account}, {region})"
    if _place(execution_arn)[0] != partition:
        rule += f", in partition {partition}"
    raise InvalidRequest(field="execution_arn", rule=rule, value=execution_arn)


def _place(arn: str) -> tuple[str, str, str]:
    """Partition, region and account of `arn:partition:service:region:account:…`."""
    _, partition, _, region, account, *_ = arn.split(":")
    return partition, region, account
