"""The embedded AWS of Fairlock's demo and tests: ministack, corrected, on loopback only.

    from testbed.localaws import LocalAws

    with LocalAws() as aws:
        aws.bootstrap()
        outputs = aws.deploy(stacks=("Fairlock",))
        aws.client("lambda").invoke(FunctionName=outputs["Fairlock"]["AcquireFunctionName"])

What passes here has passed against a reading of the AWS documentation, not against AWS.
"""

from testbed.localaws.errors import CdkError, EmulatorError, LocalAwsError
from testbed.localaws.local_aws import LocalAws

__all__ = ["CdkError", "EmulatorError", "LocalAws", "LocalAwsError"]
