"""The edge to DynamoDB: requests are sent and repeated here, and failures get their meaning."""
