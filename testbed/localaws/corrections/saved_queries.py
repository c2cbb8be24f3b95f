"""CloudWatch Logs saves queries, by its API and by CloudFormation.

AWS (CloudWatch Logs API reference, PutQueryDefinition, DescribeQueryDefinitions and
DeleteQueryDefinition; CloudFormation template reference, AWS::Logs::QueryDefinition): a saved
query has a name, a text and log groups, and an id, which Ref returns. A put with an id replaces
that query; an id that no query has is ResourceNotFoundException.

Emulator: knows neither the calls nor the resource type, and refuses a stack that has one.

This: the queries are stored and listed. Nothing judges their text, and no page of the list ends
before its end.
"""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from ministack.core.responses import AccountRegionScopedDict, error_response_json, json_response
from ministack.services import cloudwatch_logs

from testbed.localaws.corrections import _provisioner

_saved: Final = AccountRegionScopedDict()
_PROPERTIES: Final = {
    "Name": "name",
    "QueryString": "queryString",
    "LogGroupNames": "logGroupNames",
}


def apply() -> None:
    """Save queries."""
    original = cloudwatch_logs.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        if operation not in _OPERATIONS:
            return await original(method, path, headers, body, query)
        return _OPERATIONS[operation](json.loads(body))

    cloudwatch_logs.handle_request = handle_request
    _provisioner.add(
        "AWS::Logs::QueryDefinition", {"create": _create, "update": _update, "delete": _delete}
    )


def _put(request: Mapping[str, Any]) -> Any:
    query_id = request.get("queryDefinitionId")
    if query_id is not None and query_id not in _saved:
        return _not_found(query_id)
    query_id = query_id or str(uuid.uuid4())
    _save(query_id, request)
    return json_response({"queryDefinitionId": query_id})


def _describe(request: Mapping[str, Any]) -> Any:
    prefix = request.get("queryDefinitionNamePrefix", "")
    found = [query for query in _saved.values() if query["name"].startswith(prefix)]
    return json_response({"queryDefinitions": found})


def _remove(request: Mapping[str, Any]) -> Any:
    if _saved.pop(request["queryDefinitionId"], None) is None:
        return _not_found(request["queryDefinitionId"])
    return json_response({"success": True})


_OPERATIONS: Final = {
    "PutQueryDefinition": _put,
    "DescribeQueryDefinitions": _describe,
    "DeleteQueryDefinition": _remove,
}


def _not_found(query_id: str) -> Any:
    message = f"No query definition has the id {query_id}"
    return error_response_json("ResourceNotFoundException", message, 400)


def _save(query_id: str, fields: Mapping[str, Any]) -> None:
    known = {name: fields[name] for name in _PROPERTIES.values() if fields.get(name) is not None}
    modified = time.time_ns() // 1_000_000
    _saved[query_id] = {**known, "queryDefinitionId": query_id, "lastModified": modified}


def _create(_logical_id: str, properties: Mapping[str, Any], _stack: str) -> tuple[str, Any]:
    return _write(str(uuid.uuid4()), properties)


def _update(physical_id: str, _old: Any, new: Mapping[str, Any], *_: Any) -> tuple[str, Any]:
    return _write(physical_id, new)


def _delete(physical_id: str, _properties: Any) -> None:
    _saved.pop(physical_id, None)


def _write(query_id: str, properties: Mapping[str, Any]) -> tuple[str, Any]:
    missing = [name for name in ("Name", "QueryString") if not properties.get(name)]
    if missing:
        raise ValueError(f"AWS::Logs::QueryDefinition: required key [{missing[0]}] not found")
    _save(query_id, {name: properties.get(key) for key, name in _PROPERTIES.items()})
    return query_id, {"QueryDefinitionId": query_id}
