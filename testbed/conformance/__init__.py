"""AWS's conformance requirements of durable functions, on both engines that our tests use.

    python -m testbed.conformance          run, print the table, write docs/durable-conformance.md
    python -m testbed.conformance 4-1 4-3  only these, print only

The requirements and what compares a history with them are AWS's, the package
aws-durable-execution-conformance-tests. The functions in `handlers` are ours.
"""
