"""Workflows are followed within one account and region only."""

from __future__ import annotations

from leasehold.errors import InvalidRequest


def require_same_account(execution_arn: str | None, *, function_arn: str) -> None:
    """Refuses an execution that the service can neither hear of nor ask about.

    Its lease would be extended for ever, because nobody could say that it is over.

    Args:
        execution_arn: what the request names, if it does.
        function_arn: of the function that serves it.

    Raises:
        InvalidRequest: names where the execution must be.
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
