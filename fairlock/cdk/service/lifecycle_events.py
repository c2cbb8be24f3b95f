"""The function that tells EventBridge of grants, releases and losses, by the table's stream."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources

from fairlock.cdk.service.functions import FunctionFactory
from fairlock.errors import InvalidRequest
from fairlock.protocol import schema

_BATCH_SIZE: Final = 100
_BATCHING_SECONDS: Final = 1
_LOCKS: Final = {"Keys": {schema.SORT_KEY: {"S": [schema.STATE]}}}
_FENCED_CLAIMS: Final = {
    "Keys": {schema.PARTITION_KEY: {"S": [{"prefix": schema.partition_of_execution("")}]}},
    "NewImage": {schema.FENCED: {"N": [{"exists": True}]}},
}


def make_publisher(functions: FunctionFactory) -> lambda_.Function:
    """Makes the function, which reads the stream and may do nothing else but put events.

    Raises:
        InvalidRequest: the table has no stream.
    """
    if functions.table.table_stream_arn is None:
        rule = "must be False for a table without a stream of new and old images"
        raise InvalidRequest(field="lifecycle_events", rule=rule, value=True)
    function = functions.make(
        "Publish",
        description="Fairlock: tells EventBridge what happens to locks",
        table_actions=[],
        workflow_actions=[],
    )
    bus = Stack.of(functions.scope).format_arn(
        service="events", resource="event-bus", resource_name="default"
    )
    function.add_to_role_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]))
    function.add_event_source(
        sources.DynamoEventSource(
            functions.table,
            starting_position=lambda_.StartingPosition.LATEST,
            batch_size=_BATCH_SIZE,
            max_batching_window=Duration.seconds(_BATCHING_SECONDS),
            filters=[
                lambda_.FilterCriteria.filter({"dynamodb": pattern})
                for pattern in (_LOCKS, _FENCED_CLAIMS)
            ],
        )
    )
    return function
