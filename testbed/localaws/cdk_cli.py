"""The real CDK CLI of this repository (pinned by package.json), aimed at an emulator."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.localaws.environment import ACCOUNT, REGION, without_foreign_settings
from testbed.localaws.errors import CdkError

CHECKOUT = Path(__file__).resolve().parents[2]
_CLI = CHECKOUT / "node_modules" / ".bin" / "cdk"
_BOOTSTRAP_TEMPLATE = (
    CHECKOUT / "node_modules" / "aws-cdk" / "lib" / "api" / "bootstrap" / "bootstrap-template.yaml"
)
_LONGEST_SECONDS = 600
# The CLI's own switches: no notices from the network, no telemetry, no question, no colours.
_QUIET = ("--no-notices", "--no-version-reporting", "--no-color", "--ci")
_SWITCHED_OFF = {
    "CDK_DISABLE_CLI_TELEMETRY": "1",
    "CDK_DISABLE_VERSION_CHECK": "1",
    "CI": "1",
    "NO_COLOR": "1",
}


def bootstrap(cloudformation: Any) -> None:
    """Create CDKToolkit from the CLI's own bootstrap template, without running the CLI.

    The same stack as `cdk bootstrap` makes (its template, its parameters), in well under a second
    instead of nine: it saves the CLI's start and its polling.
    """
    if not _BOOTSTRAP_TEMPLATE.exists():
        raise CdkError("the CDK CLI is not installed: run `npm ci`", output="")
    parameters = {
        "FileAssetsBucketKmsKeyId": "AWS_MANAGED_KEY",
        "CloudFormationExecutionPolicies": "arn:aws:iam::aws:policy/AdministratorAccess",
    }
    cloudformation.create_stack(
        StackName="CDKToolkit",
        TemplateBody=_BOOTSTRAP_TEMPLATE.read_text(),
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()
        ],
        Capabilities=["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName="CDKToolkit", WaiterConfig={"Delay": 0.1, "MaxAttempts": 600}
    )


class CdkCli:
    """Runs `cdk` with the given environment; its files go into a directory of `workspace`."""

    def __init__(self, *, environment: Mapping[str, str], workspace: Path) -> None:
        self._workspace = workspace
        self._environment = {
            **without_foreign_settings(),
            **environment,
            **_SWITCHED_OFF,
            "CDK_HOME": str(workspace / "cdk-home"),
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": REGION,
            # `python3 app.py` is this interpreter, and `node` the one that is installed beside it.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def deploy(
        self, *, stacks: Sequence[str], app: str, context: Mapping[str, str]
    ) -> dict[str, dict[str, str]]:
        """Deploy and answer the outputs; CdkError if the CLI fails."""
        with tempfile.TemporaryDirectory(dir=self._workspace, prefix="cdk-") as directory:
            outputs = Path(directory) / "outputs.json"
            self._run(
                "deploy",
                *stacks,
                "--require-approval=never",
                "--method=direct",
                "--asset-parallelism",
                f"--concurrency={max(1, len(stacks))}",
                f"--outputs-file={outputs}",
                *self._source(app, context, directory),
            )
            if not outputs.exists():  # the CLI writes none when no stack has an output
                return {}
            found: dict[str, dict[str, str]] = json.loads(outputs.read_text())
            return found

    def destroy(self, *, stacks: Sequence[str], app: str, context: Mapping[str, str]) -> None:
        """Destroy without asking; CdkError if the CLI fails."""
        with tempfile.TemporaryDirectory(dir=self._workspace, prefix="cdk-") as directory:
            self._run("destroy", *stacks, "--force", *self._source(app, context, directory))

    @staticmethod
    def _source(app: str, context: Mapping[str, str], directory: str) -> list[str]:
        # An assembly that exists already is read where it is; `--output` is for a new one.
        synthesized = (CHECKOUT / app / "manifest.json").exists()
        output = [] if synthesized else [f"--output={directory}/cdk.out"]
        settings = [f"--context={name}={value}" for name, value in context.items()]
        return [f"--app={app}", *output, *settings]

    def _run(self, *arguments: str) -> None:
        if not _CLI.exists():
            raise CdkError("the CDK CLI is not installed: run `npm ci`", output="")
        command = " ".join(["cdk", *arguments])
        try:
            done = subprocess.run(
                [str(_CLI), *arguments, *_QUIET],
                cwd=CHECKOUT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired as late:
            output = (late.output or b"").decode(errors="replace")
            raise CdkError(f"`{command}` took over {_LONGEST_SECONDS} s", output=output) from None
        if done.returncode != 0:
            raise CdkError(f"`{command}` ended with {done.returncode}", output=done.stdout)
