"""A plugin of pytest (`-p`): every embedded AWS of the tests has the second interpreter."""

from testbed import localaws
from testbed.second_engine.aws import AwsWithSecondInterpreter

# Plugins are imported before the tests' own files, which then import this class.
localaws.LocalAws = AwsWithSecondInterpreter  # type: ignore[misc]
