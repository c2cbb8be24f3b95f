"""What can go wrong with the embedded AWS itself.

LocalAwsError
├── EmulatorError   the emulator is the wrong version, did not come up, or is gone
└── CdkError        the CDK CLI ended with an error; its output is part of the message
"""


class LocalAwsError(Exception):
    """Base of everything this package raises on its own account."""


class EmulatorError(LocalAwsError):
    """The emulator cannot be used; the message carries the tail of its log."""


class CdkError(LocalAwsError):
    """The CDK CLI failed; `output` is everything it printed."""

    def __init__(self, message: str, *, output: str) -> None:
        super().__init__(f"{message}\n{output}".rstrip())
        self.output = output
