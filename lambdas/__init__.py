"""Entry points of the Lambda functions. Each parses, makes one core call, and shapes the answer."""
