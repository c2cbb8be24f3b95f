"""The edge to DynamoDB: requests are sent and repeated here, and failures get their meaning.

Workflow engines: wake an execution that waits, and ask whether an execution still runs.
"""
