"""LocalStack's Step Functions on loopback, in a process and an environment of its own."""
