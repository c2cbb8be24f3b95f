"""What the Lambda runtime hands to a handler beside the event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LambdaContextStub:
    function_name: str = "acquire"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000
