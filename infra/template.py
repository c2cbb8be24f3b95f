"""Writes the lock service as a CloudFormation template and a zip: `make template`.

    out/template/fairlock-<version>.json         the template
    out/template/fairlock-<version>-<hash>.zip   the functions' code, named by its content

The same sources and settings give the same bytes (the zip: with the same zlib, and the
same Python 3.13 or none, which makes the byte code in it).
"""

from __future__ import annotations

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
from typing import Final

from aws_cdk import App

from fairlock.errors import InvalidRequest
from infra.lock_stack import LockStack
from infra.portable_template import Json, portable
from infra.settings import SETTINGS, SettingError, Settings

ROOT: Final = Path(__file__).resolve().parent.parent
_STACK_NAME: Final = "Fairlock"
_FUNCTION: Final = "AWS::Lambda::Function"
_HASH_LENGTH: Final = 16
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can tell."""
_READABLE_FILE: Final = 0o100644 << 16
_UNIX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The two files."""

    template: Path
    code: Path


def write(target: Path, settings: Mapping[str, str]) -> Written:
    """Writes both files into `target`, which is emptied first.

    Args:
        target: a directory.
        settings: as `cdk deploy -c name=value` takes them.

    Raises:
        SettingError: names a setting and its allowed values.
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
    """The stack's template, and the files of the functions' code with their licences."""
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
