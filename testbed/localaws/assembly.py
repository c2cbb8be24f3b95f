"""Creates the stacks of a cloud assembly as the CDK CLI does, without starting it.

The CLI takes seconds of a processor to start, to ask for the state of stacks and to look for
changes: a test that deploys once, into an empty account, needs none of that.
"""

import compileall
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from testbed.localaws.environment import ACCOUNT, REGION

Json = dict[str, Any]
_POLLS = {"Delay": 0.1, "MaxAttempts": 6000}


def create(
    assembly: Path, stacks: Sequence[str], client: Callable[[str], Any]
) -> dict[str, dict[str, str]]:
    """Create these stacks and those that they need, with their assets; stack name -> outputs.

    Not supported: a stack that exists, a stage, an image, a parameter without a default.
    """
    artifacts: dict[str, Json] = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    kind = "aws:cloudformation:stack"
    needs = {
        name: {other for other in one.get("dependencies", ()) if artifacts[other]["type"] == kind}
        for name, one in artifacts.items()
        if one["type"] == kind
    }
    wanted, ahead = set[str](), [*stacks]
    while ahead:
        name = ahead.pop()
        wanted.add(name)
        ahead += needs[name]
    _publish(assembly, wanted, client("s3"))
    cloudformation, outputs = client("cloudformation"), dict[str, dict[str, str]]()
    order = TopologicalSorter({name: needs[name] for name in wanted})
    order.prepare()
    while order.is_active():
        ready = order.get_ready()
        for name in ready:
            url = _resolved(artifacts[name]["properties"]["stackTemplateAssetObjectUrl"])
            cloudformation.create_stack(
                StackName=name,
                TemplateURL=url.replace("s3://", "https://s3.amazonaws.com/"),
                Capabilities=["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
            )
        for name in ready:
            created = cloudformation.get_waiter("stack_create_complete")
            created.wait(StackName=name, WaiterConfig=_POLLS)
            [stack] = cloudformation.describe_stacks(StackName=name)["Stacks"]
            told = stack.get("Outputs", [])
            outputs[name] = {each["OutputKey"]: each["OutputValue"] for each in told}
        order.done(*ready)
    return outputs


def _publish(assembly: Path, stacks: set[str], storage: Any) -> None:
    """Put the assets of these stacks, their templates among them, where the bootstrap says."""
    files: dict[str, Json] = {}
    for name in stacks:
        files |= json.loads((assembly / f"{name}.assets.json").read_text())["files"]
    for file in files.values():
        path = assembly / file["source"]["path"]
        body = _zipped(path) if file["source"]["packaging"] == "zip" else path.read_bytes()
        for there in file["destinations"].values():
            bucket, key = _resolved(there["bucketName"]), there["objectKey"]
            storage.put_object(Bucket=bucket, Key=key, Body=body)


def _zipped(directory: Path) -> bytes:
    """With byte code for the interpreter that runs functions here: each cold start reads it."""
    archive = io.BytesIO()
    with tempfile.TemporaryDirectory() as temporary:
        copy = shutil.copytree(directory, Path(temporary, "code"))
        compileall.compile_dir(copy, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as files:
            for path in sorted(copy.rglob("*")):
                files.write(path, path.relative_to(copy))
    return archive.getvalue()


def _resolved(text: str) -> str:
    return text.replace("${AWS::AccountId}", ACCOUNT).replace("${AWS::Region}", REGION)
