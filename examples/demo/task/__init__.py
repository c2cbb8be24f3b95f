"""The demo's task: the whole folder is the Lambda function's asset."""
