"""`python -m testbed.localaws`: an embedded AWS in the foreground, until Ctrl-C."""

import contextlib
import signal
import sys

from testbed.localaws.local_aws import LocalAws


def main() -> None:
    """Start, bootstrap, print the environment to export, and wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), LocalAws() as aws:
        aws.bootstrap()
        sys.stdout.write(f"# Embedded AWS at {aws.endpoint_url}, until Ctrl-C. In another shell:\n")
        for name, value in aws.environment.items():
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
