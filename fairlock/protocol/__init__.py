"""The lock protocol: facts in, DynamoDB requests and verdicts out. Nothing here does I/O."""
