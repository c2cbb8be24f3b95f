"""`LocalAws`: an AWS of its own for as long as a `with` block lasts."""

import functools
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from testbed.localaws import cdk_cli, corrections
from testbed.localaws.environment import REGION, client_settings
from testbed.localaws.errors import EmulatorError
from testbed.localaws.process import EmulatorProcess

if TYPE_CHECKING:
    import boto3

# botocore's form: name in a config file, environment variable, default, conversion.
_NOTHING_OF_THE_USER = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}

_making_clients = threading.Lock()  # a session makes one client at a time


@functools.cache
def _session() -> "boto3.session.Session":
    """One for all instances: reading the services' descriptions takes longer than a test."""
    # The emulator's own process imports this package too, and would load the SDK for nothing.
    import boto3  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415

    return boto3.session.Session(
        region_name=REGION,
        botocore_session=botocore.session.Session(session_vars=_NOTHING_OF_THE_USER),
    )


class LocalAws:
    """An embedded AWS on a free loopback port, corrected where the emulator differs from AWS.

    Guarantees: several run side by side without seeing each other; nothing reads or uses the
    credentials, profiles or endpoints of the machine's user; leaving the `with` block ends every
    process it started and removes its files.
    Not guaranteed: that AWS behaves the same. The README beside this file names differences.

    `without` names corrections to leave out (see `NAMES` in `corrections`), for tests that
    show what a correction is good for. `settings` are more environment variables of the emulator.
    Raises EmulatorError if the emulator is of another version or does not come up.
    """

    def __init__(
        self, *, without: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        corrections.require_known(without)
        self._without = tuple(without)
        self._settings = dict(settings or {})
        self._process: EmulatorProcess | None = None

    def __enter__(self) -> Self:
        """Start the emulator and wait until it answers."""
        self._process = EmulatorProcess(without=self._without, settings=self._settings)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End every process of this instance and remove its files."""
        self._running.end()
        self._process = None

    @property
    def endpoint_url(self) -> str:
        """The URL of every service, for instance http://127.0.0.1:49152."""
        return self._running.endpoint_url

    @property
    def pid(self) -> int:
        """Process id (and process group id) of the emulator."""
        return self._running.pid

    @property
    def home(self) -> Path:
        """Where this instance keeps its files while it runs."""
        return self._running.home

    @property
    def access_key(self) -> str:
        """The secret of this instance, as an access key: it serves no request without it."""
        return self._running.access_key

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which any SDK, AWS CLI or CDK CLI reaches this instance and only it."""
        return client_settings(self.endpoint_url, self.access_key)

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client bound to this instance; `config` goes into `botocore.config.Config`."""
        import botocore.config  # noqa: PLC0415 - see _session

        merged = botocore.config.Config(inject_host_prefix=False, proxies={}).merge(
            botocore.config.Config(**config)
        )
        with _making_clients:
            # The overloads of boto3-stubs want a literal service name.
            return _session().client(  # type: ignore[call-overload]
                service,
                endpoint_url=self.endpoint_url,
                config=merged,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
            )

    def bootstrap(self) -> None:
        """Prepare the account for the CDK, with the template of the pinned CDK CLI."""
        cdk_cli.bootstrap(self.client("cloudformation"))

    def deploy(
        self,
        *,
        stacks: Sequence[str],
        app: str | Path = "python3 app.py",
        context: Mapping[str, str] | None = None,
    ) -> dict[str, dict[str, str]]:
        """Deploy stacks with the real CDK CLI; stack name -> outputs.

        `app` is a command that synthesizes, or the directory of a cloud assembly synthesized
        before (which saves the synthesis). Raises CdkError with the CLI's output.
        """
        cli = cdk_cli.CdkCli(environment=self.environment, workspace=self._running.home)
        return cli.deploy(stacks=stacks, app=str(app), context=dict(context or {}))

    def destroy(
        self,
        *,
        stacks: Sequence[str],
        app: str | Path = "python3 app.py",
        context: Mapping[str, str] | None = None,
    ) -> None:
        """Destroy stacks with the real CDK CLI. Raises CdkError with the CLI's output."""
        cli = cdk_cli.CdkCli(environment=self.environment, workspace=self._running.home)
        cli.destroy(stacks=stacks, app=str(app), context=dict(context or {}))

    def log_tail(self) -> str:
        """The last lines of the emulator's log, for messages of failed tests."""
        return self._running.log_tail()

    @property
    def _running(self) -> EmulatorProcess:
        if self._process is None:
            raise EmulatorError("LocalAws is not running: use it in a `with` block")
        return self._process
