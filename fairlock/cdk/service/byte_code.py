"""Byte code beside the modules of the asset, so that a cold start compiles nothing.

Lambda's /var/task is read-only, so what is not compiled in the asset is compiled at each cold
start. Python looks for the byte code of `x.py` in `__pycache__/x.cpython-313.pyc`, where 313 is its
own minor version. Architecture and operating system do not matter. Byte code of another version,
or of other source text, is not used: Python compiles the source then. So byte code makes a cold
start shorter, and changes nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

_ON_LAMBDA: Final = "/var/task"
_MOST_SECONDS: Final = 30
"""For all modules; without byte code a cold start is longer, and a synth must not hang."""

_COMPILE: Final = (
    *("-I", "-S", "-m", "compileall", "-q"),
    # Paths in tracebacks are those on Lambda. So the bytes do not depend on a directory here.
    *("-d", _ON_LAMBDA),
    # By default byte code belongs to a source by the time when that was changed. CDK's zip sets all
    # times to 1980, so Lambda would not use it. `checked-hash` (PEP 552) goes by the content, which
    # also notices a source that was changed in Lambda's console; `unchecked-hash` would not.
    *("--invalidation-mode", "checked-hash"),
)

Sources = tuple[tuple[str, bytes], ...]
"""Path and content of each module."""


def add_byte_code(asset: Path, runtime: str) -> None:
    """Compiles every module of a directory for a runtime, if its Python is on this machine.

    Without that Python, or if a module cannot be compiled by it, the directory stays as it is.
    Neither is an error. All modules are compiled before the first byte is written, and each file
    appears as a whole, so two processes may do this at the same time, and a process that dies
    leaves nothing that is wrong; the next call adds what is missing.

    Args:
        asset: what will be /var/task.
        runtime: as Lambda names it, `python3.13` for instance.
    """
    tag = runtime.replace("python", "cpython-").replace(".", "")
    modules = [path.relative_to(asset).as_posix() for path in sorted(asset.rglob("*.py"))]
    python = _python_of(runtime, tag)
    if python is None or all((asset / byte_code_path(each, tag)).exists() for each in modules):
        return
    sources = tuple((each, (asset / each).read_bytes()) for each in modules)
    with suppress(OSError):
        _write(asset, _compiled(python, tag, sources))


def byte_code_path(module: str, tag: str) -> PurePosixPath:
    """Where Python looks for the byte code of a module."""
    source = PurePosixPath(module)
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


def _python_of(runtime: str, tag: str) -> str | None:
    """This Python if it is the runtime's, otherwise what has the runtime's name on the PATH."""
    if sys.implementation.cache_tag == tag:
        return sys.executable
    return shutil.which(runtime)


@lru_cache(maxsize=1)
def _compiled(python: str, tag: str, sources: Sources) -> Mapping[PurePosixPath, bytes]:
    """The byte code of all modules, or nothing.

    Cached, because a program may synthesize many apps, as tests do.

    Raises:
        OSError: what has this name cannot be run, or made no files of these names, because it is
            another Python or none.
    """
    paths = [byte_code_path(module, tag) for module, _ in sources]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        _write(home, {PurePosixPath(module): content for module, content in sources})
        try:
            subprocess.run(  # noqa: S603 - a Python of this user's PATH
                [python, *_COMPILE, directory],
                check=True,
                timeout=_MOST_SECONDS,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # No pipe: a child of a launcher could hold it open.
                stderr=subprocess.DEVNULL,
            )
        except subprocess.SubprocessError:
            return {}
        return {path: (home / path).read_bytes() for path in paths}


def _write(target: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    """Writes each file under another name beside the target, and moves it to its place."""
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        for path, content in files.items():
            unfinished = Path(directory, path.name)
            unfinished.write_bytes(content)
            unfinished.chmod(0o644)  # Lambda reads it as another user, whatever the umask here.
            (target / path.parent).mkdir(parents=True, exist_ok=True)
            os.replace(unfinished, target / path)  # noqa: PTH105
