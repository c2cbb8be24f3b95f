"""Case 15: a service that is destroyed and deployed again, with the table it retains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.e2e.deployment import Deployment
from tests.smoke.account import RETAINED, Account
from tests.smoke.cloudformation import delete_log_groups, delete_tables


@dataclass(frozen=True)
class Retained:
    """A service that is deployed for a block; what outlives that is noted, and removed at last."""

    account: Account
    tables: list[str] = field(default_factory=list)
    log_groups: list[str] = field(default_factory=list)

    @contextmanager
    def deployed(self) -> Iterator[Deployment]:
        stacks = self.account.stacks
        try:
            created = stacks.create(RETAINED)
            yield Deployment(
                aws=self.account.workflows.aws, outputs={RETAINED: created}, service=RETAINED
            )
        finally:
            # Even if the creation has failed: what is to be retained outlives its rollback.
            self.tables.extend(stacks.resources(RETAINED, "AWS::DynamoDB::Table"))
            self.log_groups.extend(stacks.resources(RETAINED, "AWS::Logs::LogGroup"))
            stacks.delete(RETAINED)

    def remove(self) -> None:
        with ExitStack() as steps:
            steps.callback(delete_tables, self.account.client("dynamodb"), self.tables)
            steps.callback(delete_log_groups, self.account.client("logs"), self.log_groups)


def test_a_retained_table_outlives_its_stack_and_a_new_deployment_has_another(
    account: Account, lock: str
) -> None:
    """Decides whether a destroyed service's table and locks stay, and a redeployment ignores them.

    Then clients of the old table and functions of the new one do not exclude each other.
    """
    retained = Retained(account)
    try:
        with retained.deployed() as first:
            assert _acquire(first, lock, "the first")
        assert not account.stacks.exists(RETAINED)
        assert first.holders(lock) == ["the first"]
        with retained.deployed() as second:
            assert _acquire(second, lock, "the second")
            account.tell(f"destroyed and redeployed: {len(set(retained.tables))} old table stays")
            assert second.table_name != first.table_name
            assert (first.holders(lock), second.holders(lock)) == (["the first"], ["the second"])
    finally:
        retained.remove()


def _acquire(service: Deployment, lock: str, owner: str) -> bool:
    owner_id = f"{owner} owner of {lock}"
    answer = service.invoke("Acquire", lock_name=lock, owner_id=owner_id, owner_name=owner)
    return bool(answer["acquired"])
