"""The edge to AWS: requests are sent and repeated here, and failures get their meaning.

`lock_table` sends the requests of the protocol to DynamoDB. `retry` says how long, and what their
failure means; `aws_clock` learns AWS's time from the answers. `executions` wakes an execution that
waits, and asks whether one still runs.
"""
