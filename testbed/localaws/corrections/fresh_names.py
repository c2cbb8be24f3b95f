"""A stack that is created again gives its resources new names, and finds no table of before.

AWS (CloudFormation user guide, "Resources and stacks", "Name type", "DeletionPolicy attribute"): a
resource without a name gets one with a random end, which stays as long as the stack does. A
resource with DeletionPolicy Retain outlives its stack, and no later stack knows it. To create a
table whose name is taken fails.

Emulator: the end of a name depends on the names of stack and resource only, so that a stack that is
created again gets the name of the table that was retained, and empties that table. So does a table
whose own name is taken.

This: the end also depends on the stack's id, which is new with each creation, and the table's
creation fails.
"""

from typing import Any

from ministack.services import dynamodb

from testbed.localaws.corrections import _provisioner

_TYPES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")


def apply() -> None:
    """Name by the stack's id, and refuse a table's name that is taken."""
    _provisioner.when_loaded(_name_by_id)
    for resource_type in _TYPES:
        _provisioner.wrap(resource_type, _refuse_taken_name)


def _name_by_id(module: Any) -> None:
    provisioners = module.provisioners
    original = provisioners._physical_name

    def physical_name(stack_name: str, logical_id: str, **more: Any) -> Any:
        stack_id = (module._stacks.get(stack_name) or {}).get("StackId", "")
        seed = provisioners._NAME_SEED
        token = seed.set(f"{stack_id}{seed.get()}" if more.get("seeded", True) else seed.get())
        try:
            return original(stack_name, logical_id, **more)
        finally:
            seed.reset(token)

    provisioners._physical_name = physical_name


def _refuse_taken_name(handlers: _provisioner.Handlers) -> None:
    original = handlers["create"]

    def create(logical_id: str, properties: Any, stack_name: str) -> Any:
        name = properties.get("TableName")
        if name in dynamodb._tables:
            raise ValueError(
                f"Resource of type 'AWS::DynamoDB::Table' with identifier '{name}' already exists."
            )
        return original(logical_id, properties, stack_name)

    handlers["create"] = create
