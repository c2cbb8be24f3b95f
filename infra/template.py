"""Writes the lock service as a CloudFormation template and a zip: `make template`.

    out/template/fairlock-<version>.json         the template
    out/template/fairlock-<version>-<hash>.zip   the functions' code, named by its content

The same sources and settings, with the same zlib and Python 3.13 or none, give the same bytes.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from aws_cdk import App

from fairlock.errors import InvalidRequest
from infra.lock_stack import LockStack
from infra.settings import SETTINGS, SettingError, Settings

Json = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parent.parent
_STACK_NAME: Final = "Fairlock"
_FUNCTION: Final = "AWS::Lambda::Function"
_HASH_LENGTH: Final = 16
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can tell."""
_READABLE_FILE: Final = 0o100644 << 16
_UNIX: Final = 3
_SHARED_NAME: Final = "AWS::SSM::Parameter"
_OF_THE_CDK: Final = ("cdk-hnb659fds", "cdk-bootstrap", "aws:cdk:", "aws:asset:")
_PARAMETERS: Final = {
    "CodeBucket": {
        "Type": "String",
        "Description": "The bucket with the functions' code, in the region of the stack.",
    },
    "CodeKeyPrefix": {
        "Type": "String",
        "Default": "",
        "AllowedPattern": "^$|^.*/$",
        "ConstraintDescription": "must be empty or end with a slash",
        "Description": "What stands before the name of the code's file in the bucket.",
    },
}


class NotPortableError(Exception):
    """The template still needs something of the CDK."""


def portable(template: Json, *, stack_name: str, code_file: str) -> Json:
    """A copy of the template that CloudFormation deploys without the CDK's bootstrap stack.

    The code, the zip `code_file`, is in a bucket and under a prefix that parameters name, and the
    parameters that other stacks read are named after whatever name the stack is given. All
    resources keep their logical ids, so either template can update a stack of the other.

    Raises:
        NotPortableError: names what of the CDK would be left in the template.
    """
    made = copy.deepcopy(template)
    made.pop("Rules", None)
    made["Parameters"] = {**_PARAMETERS, **made.get("Parameters", {})}
    made["Parameters"].pop("BootstrapVersion", None)
    for resource in made["Resources"].values():
        resource.pop("Metadata", None)
        properties = resource.get("Properties", {})
        if resource["Type"] == _FUNCTION:
            properties["Code"] = {
                "S3Bucket": {"Ref": "CodeBucket"},
                "S3Key": {"Fn::Sub": f"${{CodeKeyPrefix}}{code_file}"},
            }
        elif resource["Type"] == _SHARED_NAME:
            before, _, after = properties["Name"].partition(f"/{stack_name}/")
            properties["Name"] = {"Fn::Sub": f"{before}/${{AWS::StackName}}/{after}"}
    text = json.dumps(made)
    if found := [part for part in (*_OF_THE_CDK, f"/{stack_name}/") if part in text]:
        raise NotPortableError(f"the template still has {', '.join(found)} in it")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The two files."""

    template: Path
    code: Path


def write(target: Path, settings: Mapping[str, str]) -> Written:
    """Writes both files into the directory `target`, which is emptied first.

    Raises:
        SettingError: names a setting, as `cdk deploy -c name=value` takes it, and what is allowed.
        InvalidRequest: the same, of a value that the service itself checks.
    """
    unknown = sorted(set(settings) - SETTINGS | {"demo"} & set(settings))
    if unknown:
        known = ", ".join(sorted(SETTINGS - {"demo"}))
        raise SettingError(f"{', '.join(unknown)}: is no setting; the settings are {known}")
    with tempfile.TemporaryDirectory() as directory:
        template, files = _synthesized(Path(directory), settings)
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    name = f"fairlock-{version('fairlock')}"
    code = target / f"{name}-{digest.hexdigest()[:_HASH_LENGTH]}.zip"
    made = portable(template, stack_name=_STACK_NAME, code_file=code.name)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    code.write_bytes(_zipped(files))
    written = Written(template=target / f"{name}.json", code=code)
    # Not indented: CloudFormation takes 51,200 bytes of a template that is in no bucket.
    written.template.write_text(json.dumps(made) + "\n")
    return written


def _synthesized(directory: Path, settings: Mapping[str, str]) -> tuple[Json, dict[str, bytes]]:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(outdir=str(directory), context={**context, **settings})
    LockStack(app, _STACK_NAME, settings=Settings.from_context(app.node))
    template: Json = app.synth().get_stack_by_name(_STACK_NAME).template
    hashes = {
        resource["Properties"]["Code"]["S3Key"].removesuffix(".zip")
        for resource in template["Resources"].values()
        if resource["Type"] == _FUNCTION
    }
    [asset] = [directory / f"asset.{each}" for each in hashes]
    paths = sorted(path for path in asset.rglob("*") if path.is_file())
    files = {path.relative_to(asset).as_posix(): path.read_bytes() for path in paths}
    return template, {"LICENSE": (ROOT / "LICENSE").read_bytes(), **files}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip that tells no time, and nothing of the machine that made it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.create_system, entry.external_attr = _UNIX, _READABLE_FILE
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def main(arguments: Sequence[str]) -> None:
    """Writes the files and says where they are. The arguments are settings, `name=value`."""
    settings = {name: value for name, _, value in (each.partition("=") for each in arguments)}
    try:
        written = write(ROOT / "out" / "template", settings)
    except (SettingError, InvalidRequest) as error:
        sys.exit(str(error))
    for path in (written.template, written.code):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
