"""CloudFormation sets what a table's template says, and deletes no protected table.

AWS (CloudFormation template reference, AWS::DynamoDB::Table and AWS::DynamoDB::GlobalTable):
TimeToLiveSpecification, PointInTimeRecoverySpecification, SSESpecification and
DeletionProtectionEnabled are properties of the table; deleting a protected table fails.

Emulator: drops the first three, for GlobalTable (CDK's TableV2) the last one too, and deletes
protected tables.

This: the properties are set through the emulator's own table operations after each create and
update, and the delete of a protected table fails.
"""

from collections.abc import Mapping
from typing import Any

from ministack.services import dynamodb

from testbed.localaws.corrections import _provisioner

_TYPES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
_PROTECTED = (
    "Resource cannot be deleted as it is currently protected against deletion."
    " Disable deletion protection first."
)


def apply() -> None:
    """Set the dropped properties, and refuse to delete protected tables."""
    for resource_type in _TYPES:
        _provisioner.after_write(resource_type, _set_properties)
        _provisioner.wrap(resource_type, _refuse_protected_delete)


def _set_properties(table_name: str, properties: Mapping[str, Any]) -> None:
    replica = (properties.get("Replicas") or [{}])[0]  # the only one: the stack's own region
    _set_time_to_live(table_name, properties.get("TimeToLiveSpecification"))
    recovery = _first(properties, replica, "PointInTimeRecoverySpecification")
    if recovery is not None:
        dynamodb._update_continuous_backups(
            {"TableName": table_name, "PointInTimeRecoverySpecification": recovery}
        )
    encryption = properties.get("SSESpecification")
    if encryption is not None:
        key = (replica.get("SSESpecification") or {}).get("KMSMasterKeyId")
        description = dynamodb._sse_description_from_spec(
            {
                "Enabled": encryption.get("SSEEnabled"),
                "SSEType": encryption.get("SSEType"),
                "KMSMasterKeyId": encryption.get("KMSMasterKeyId") or key,
            }
        )
        dynamodb._tables[table_name]["SSEDescription"] = description
    protected = _first(properties, replica, "DeletionProtectionEnabled")
    if protected is not None:
        dynamodb._tables[table_name]["DeletionProtectionEnabled"] = protected


def _set_time_to_live(table_name: str, wanted: Mapping[str, Any] | None) -> None:
    if wanted is None:
        return
    enabled = wanted.get("Enabled", True)
    current = dynamodb._ttl_settings.get(table_name) or {}
    if enabled and current.get("TimeToLiveStatus") == "ENABLED":
        return  # the operation refuses to enable it twice
    dynamodb._update_ttl(
        {
            "TableName": table_name,
            "TimeToLiveSpecification": {
                "Enabled": enabled,
                "AttributeName": wanted.get("AttributeName"),
            },
        }
    )


def _first(properties: Mapping[str, Any], replica: Mapping[str, Any], name: str) -> Any:
    value = properties.get(name)
    return replica.get(name) if value is None else value


def _refuse_protected_delete(handlers: _provisioner.Handlers) -> None:
    original = handlers["delete"]

    def delete(physical_id: str, properties: Any) -> Any:
        table = dynamodb._tables.get(physical_id) or {}
        if table.get("DeletionProtectionEnabled"):
            raise ValueError(_PROTECTED)
        return original(physical_id, properties)

    handlers["delete"] = delete
